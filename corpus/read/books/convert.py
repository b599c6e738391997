"""Converter of books' sources (EPUB, HTML, LaTeX, CNXML, notebooks and others) to one Markdown text, by pandoc."""

import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

from corpus.read.books import pandoc
from corpus.read.books.library import ZIP, Piece, cut_at, format_of, suffix_of
from corpus.read.books.pandoc import Cut
from corpus.read.books.tree import Archive
from corpus.read.page import page_of, reason_of
from corpus.read.printed import Removed
from infuser_core.errors import DocumentError
from infuser_core.schemas import Page
from infuser_core.system import child

CONVERTER = "pandoc-10"
MAX_LOST = 0.2
"""Share of a book's text, or of its binary parts, that may fail; else it is refused with the first one's reason."""
UNREADABLE = "unreadable"


def name() -> str:
    """The converter's name and version, with those of pandoc; they change what a book becomes."""
    return f"{CONVERTER}/{pandoc.version() or 'missing'}"


def is_book(path: Path) -> bool:
    """Whether the file's name is that of a format which pandoc reads, or of an archive of such files."""
    return bool(suffix_of(path.name))


def convert_book(path: Path, source_id: str, limits: child.Limits) -> Page:
    """The book's parts in reading order as Markdown, with what was left out; or a rejected page with its reason.

    The limits are those of the process that prepares the parts; pandoc has the time that is left of them.
    """
    end = time.monotonic() + limits.wall_seconds
    suffix = suffix_of(path.name)
    page = _read(path, source_id, suffix, limits, end)
    kind = format_of(path.name)
    if page.reason and kind is not None and kind.is_binary and zipfile.is_zipfile(path):
        # pandoc refuses a whole package for one wrong entry of its list of files.
        parts = _read(path, source_id, ZIP, limits, end)
        return page if parts.reason else parts
    return page


def _read(path: Path, source_id: str, suffix: str, limits: child.Limits, end: float) -> Page:
    """The book's page, read as a file of the suffix's format: a package at once, or as an archive of its parts."""
    try:
        if not pandoc.program():
            raise DocumentError(pandoc.WITHOUT)
        argument = {"path": str(path), "suffix": suffix}
        made = child.call("corpus.read.books.library:prepare_file", argument, limits)
    except DocumentError as error:
        has_reason = error.message.startswith(("too_long", "pandoc"))
        return page_of(source_id, converter=CONVERTER, reason=error.message if has_reason else reason_of(error))
    pieces = [Piece(**each) for each in made["pieces"]]
    cuts = [Cut(**each) for each in made["cuts"]]
    texts = []
    for written, more in _written(path, pieces, suffix, end):
        texts.append(written)
        cuts += more
    return _page(source_id, pieces, texts, cuts, suffix)


def _written(path: Path, pieces: list[Piece], suffix: str, end: float) -> Iterator[tuple[str, list[Cut]]]:
    """Markdown of each piece and what is not in it; a piece that fails costs no other."""
    archive = Archive(path) if suffix == ZIP else None
    for piece in pieces:
        if not piece.name:
            yield f"{'#' * min(1 + piece.depth, 6)} {' '.join(piece.title.split())}", []
            continue
        kind = format_of(piece.name)
        if kind is not None and kind.is_binary:
            content = archive.content(piece.name) if archive else path.read_bytes()
            yield _converted(piece, b"", content, end)
            continue
        markdown, cuts = _converted(piece, _bytes(piece.head), _bytes(piece.text), end)
        parts = list(cut_at(piece.head + kind.above, piece.text, kind.finer, kind)) if kind and kind.finer else []
        if not markdown and len(parts) > 1 and any(cut.reason == UNREADABLE for cut in cuts):
            made = [_converted(piece, _bytes(head), _bytes(text), end) for head, text in parts]
            markdown, cuts = "\n\n".join(text for text, _ in made if text), [cut for _, more in made for cut in more]
        yield markdown, cuts


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _converted(piece: Piece, head: bytes, content: bytes, end: float) -> tuple[str, list[Cut]]:
    def write(text: bytes) -> tuple[str, list[Cut]]:
        return pandoc.write(text, piece.reader, depth=piece.depth, seconds=max(end - time.monotonic(), 0.1))

    try:
        markdown, cuts = write(head + content)
        named = pandoc.plain_commands(cuts)
        return write(named + head + content) if named else (markdown, cuts)
    except DocumentError as error:
        return "", [Cut(reason=UNREADABLE, text=f"{piece.name}: {error.message}{_near(content)}", size=len(content))]


def _near(content: bytes) -> str:
    """The first line of a part with text in it, as a hint to its place in the file."""
    line = next((line for line in content.decode("utf-8", "replace").splitlines() if line.strip()), "")
    return f" (in the part that begins {line.strip()[:60]!r})" if line else ""


def _page(source_id: str, pieces: list[Piece], texts: list[str], cuts: list[Cut], suffix: str) -> Page:
    text = "\n\n".join(each for each in texts if each)
    lost = [cut for cut in cuts if cut.reason == UNREADABLE]
    failed = len(lost)
    files = failed + sum(bool(piece.name and each) for piece, each in zip(pieces, texts, strict=True))
    whole = sum(len(_bytes(piece.text)) for piece in pieces)
    share = sum(cut.size for cut in lost) / whole if whole else failed / max(files, 1)
    reason = ""
    if share > MAX_LOST:
        reason = f"unreadable: {failed} of {files} parts, {share:.0%} of it, at most {MAX_LOST:.0%} may: {lost[0].text}"
    elif not text.strip():
        reason = "empty: the book has no text"
    return page_of(
        source_id,
        "" if reason else f"{text}\n",
        num_pages=files,
        converter=name(),
        reason=reason,
        chosen=f"{suffix}: {files} parts by pandoc" + (f", {failed} of them unreadable" if failed else ""),
        removed=[Removed(text=cut.text, reason=cut.reason, page=-1) for cut in cuts],
    )
