"""Conversion of a book's source (EPUB, HTML, LaTeX, CNXML, notebooks and others) to one Markdown text, by pandoc."""

import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

from corpus.read.books import pandoc
from corpus.read.books.library import ZIP, BookPiece, format_of, split_text, suffix_of
from corpus.read.books.pandoc import Omission
from corpus.read.books.tree import Archive
from corpus.read.page import page_of, reason_of
from corpus.read.printed import RemovedText
from infuser_core.errors import DocumentError
from infuser_core.schemas import Page
from infuser_core.system import child

CONVERTER = "pandoc-17"
MAX_LOST = 0.2
"""Largest share of a book's text, or of its binary parts, that may fail; above it the book is rejected."""
MAX_RUNS = 4
"""Most conversions of a part: commands that pandoc does not know may be nested."""
UNREADABLE = "unreadable"


def name() -> str:
    """Name and version of this converter and of pandoc, which together determine a book's Markdown."""
    return f"{CONVERTER}/{pandoc.version() or 'missing'}"


def is_book(path: Path) -> bool:
    """Whether a file's suffix is that of a book format that pandoc reads, or of an archive of such files."""
    return bool(suffix_of(path.name))


def convert_book(path: Path, source_id: str, limits: child.Limits) -> Page:
    """Convert a book's parts to Markdown in reading order; returns its page row, or a rejected one with the reason.

    The limits apply to the process that prepares the parts; pandoc has the rest of the time limit.
    """
    end = time.monotonic() + limits.wall_seconds
    suffix = suffix_of(path.name)
    page = _convert_as(suffix, path, source_id, limits, end)
    kind = format_of(path.name)
    if page.reason and kind is not None and kind.is_binary and zipfile.is_zipfile(path):
        # pandoc rejects a whole package for one wrong entry of its list of files: convert its parts one by one.
        parts = _convert_as(ZIP, path, source_id, limits, end)
        return page if parts.reason else parts
    return page


def _convert_as(suffix: str, path: Path, source_id: str, limits: child.Limits, end: float) -> Page:
    """Convert a book as a file with the given suffix: a package as a whole, or an archive part by part."""
    try:
        if not pandoc.program():
            raise DocumentError(pandoc.WITHOUT)
        argument = {"path": str(path), "suffix": suffix}
        book = child.call("corpus.read.books.library:prepare_file", argument, limits)
    except DocumentError as error:
        has_reason = error.message.startswith(("too_long", "pandoc"))
        return page_of(source_id, converter=CONVERTER, reason=error.message if has_reason else reason_of(error))
    pieces = [BookPiece(**each) for each in book["pieces"]]
    omissions = [Omission(**each) for each in book["cuts"]]
    texts = []
    for text, piece_omissions in _convert_pieces(path, pieces, suffix, end):
        texts.append(text)
        omissions += piece_omissions
    return _join_pieces(source_id, pieces, texts, omissions, suffix)


def _convert_pieces(
    path: Path, pieces: list[BookPiece], suffix: str, end: float
) -> Iterator[tuple[str, list[Omission]]]:
    """Yield each piece's Markdown, and what was left out; a piece that fails does not affect the others."""
    archive = Archive(path) if suffix == ZIP else None
    for piece in pieces:
        if not piece.name:
            yield f"{'#' * min(1 + piece.depth, 6)} {' '.join(piece.title.split())}", []
            continue
        kind = format_of(piece.name)
        if kind is not None and kind.is_binary:
            content = archive.content(piece.name) if archive else path.read_bytes()
            yield _convert_text(piece, b"", content, end)
            continue
        markdown, omissions = _convert_text(piece, _bytes(piece.head), _bytes(piece.text), end)
        sections = (
            list(split_text(piece.head + kind.above, piece.text, kind.finer, kind)) if kind and kind.finer else []
        )
        if not markdown and len(sections) > 1 and any(omission.reason == UNREADABLE for omission in omissions):
            results = [_convert_text(piece, _bytes(head), _bytes(text), end) for head, text in sections]
            markdown = "\n\n".join(text for text, _ in results if text)
            omissions = [omission for _, of_section in results for omission in of_section]
        yield markdown, omissions


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _convert_text(piece: BookPiece, head: bytes, content: bytes, end: float) -> tuple[str, list[Omission]]:
    """Convert a piece with its definitions; again while pandoc skips commands that can be defined for it."""

    def run_pandoc(text: bytes) -> tuple[str, list[Omission]]:
        return pandoc.to_markdown(text, piece.reader, depth=piece.depth, seconds=max(end - time.monotonic(), 0.1))

    try:
        for _ in range(MAX_RUNS):
            markdown, omissions = run_pandoc(head + content)
            definitions = pandoc.definitions_for(omissions)
            if not definitions:
                break
            head = definitions + head
        return markdown, omissions
    except DocumentError as error:
        # The first line with text hints at the part's position in the file.
        line = next((line for line in content.decode("utf-8", "replace").splitlines() if line.strip()), "")
        place = f" (in the part that begins {line.strip()[:60]!r})" if line else ""
        omission = Omission(reason=UNREADABLE, text=f"{piece.name}: {error.message}{place}", size=len(content))
        return "", [omission]


def _join_pieces(
    source_id: str, pieces: list[BookPiece], texts: list[str], omissions: list[Omission], suffix: str
) -> Page:
    """Join the pieces' Markdown into one page row, which is rejected if too much of the book failed."""
    text = "\n\n".join(each for each in texts if each)
    failures = [omission for omission in omissions if omission.reason == UNREADABLE]
    failed = len(failures)
    files = failed + sum(bool(piece.name and each) for piece, each in zip(pieces, texts, strict=True))
    size = sum(len(_bytes(piece.text)) for piece in pieces)
    share = sum(failure.size for failure in failures) / size if size else failed / max(files, 1)
    reason = ""
    if share > MAX_LOST:
        allowed = f"{share:.0%} of it, at most {MAX_LOST:.0%} may"
        reason = f"unreadable: {failed} of {files} parts, {allowed}: {failures[0].text}"
    elif not text.strip():
        reason = "empty: the book has no text"
    return page_of(
        source_id,
        "" if reason else f"{text}\n",
        num_pages=files,
        converter=name(),
        reason=reason,
        chosen=f"{suffix}: {files} parts by pandoc" + (f", {failed} of them unreadable" if failed else ""),
        removed=[RemovedText(text=omission.text, reason=omission.reason, page=-1) for omission in omissions],
    )
