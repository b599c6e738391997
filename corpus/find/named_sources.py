"""Collect the sources that the user names when building a pool: files, folders and web addresses."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from corpus.find import identifiers
from corpus.find.registry import ADMITTED, REJECTED
from corpus.read.books.format import BookLayout
from corpus.read.books.library import NO_BOOK, NOTICE, ZIP, find_books, is_in_book, suffix_of
from corpus.read.books.tree import Folder, file_fault, is_text_file, pack_files
from corpus.read.file_kinds import PDF, SUFFIXES, file_of, pdf_fault
from infuser_core.errors import DocumentError, UsageError
from infuser_core.protocols import Progress, no_progress
from infuser_core.schemas import Source
from infuser_core.system.sealed import digest_of_file

if TYPE_CHECKING:
    from corpus.find.web_config import WebConfig

BY_USER = "given by the user"
OTHERS = (
    ".doc", ".ppt", ".mobi", ".azw3", ".djvu", ".ps", ".eps", ".dvi", ".gz", ".bz2", ".xz", ".tar", ".7z", ".rar",
    ".fb2", ".texi", ".texinfo", ".txi",
)  # fmt: skip
"""Suffixes of book formats that no converter reads: such files in a folder are rejected with that reason."""
FORMATS = "PDF, Markdown, text, EPUB, HTML, DOCX, ODT, LaTeX, AsciiDoc, rST, DocBook, notebooks, Quarto, CNXML, ZIP"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceItem:
    """A source and its local file, or the reason why it has none."""

    source: Source
    """The registry row; rejected with a reason if there is no file."""
    path: Path | None
    input: str
    """The file or address as the user wrote it."""
    subdomain: str = ""
    """Subdomain for which the source was found."""
    stage: str = ""
    """Stage that rejected it; empty if there is a file."""


def gather_sources(
    inputs: Sequence[str], out: Path, folder: Path, config: "WebConfig", *, progress: Progress = no_progress
) -> list[SourceItem]:
    """Find or download every distinct source of `inputs`; a source without a file has the reason. Files come first.

    Files in `out`, the pool's folder, are not sources; downloads are stored in `folder`. Raises UsageError for a folder
    without any book.
    """
    addresses = list(dict.fromkeys(text for text in inputs if is_address(text)))
    items: list[SourceItem] = []
    for text in inputs:
        if is_address(text):
            continue
        path = Path(text)
        if "://" in text:
            source = _source(f"file:{text}", text, text, "address: only http and https are fetched")
            items.append(SourceItem(source=source, path=None, input=text, stage="intake"))
        elif path.is_dir():
            items += _items_of_folder(path, out, folder / "packed")
        else:
            items.append(_item_of_file(path))
    if addresses:
        items += _fetch(addresses, folder, config, progress)
    return reject_duplicate_items(items)


def is_address(text: str) -> bool:
    """Whether the text is an http or https address."""
    return identifiers.parts_of(text).scheme in identifiers.WEB


def _items_of_folder(path: Path, out: Path, packed: Path) -> list[SourceItem]:
    """All books below a folder: books of several files, each packed into an archive in `packed`, then single files."""
    tree, pool = Folder(path), out.resolve()
    try:
        names = [name for name in tree.names() if pool not in (path / name).resolve().parents]
        layouts = [one for one in find_books(tree) if any(part.name in names for part in one.parts)]
    except DocumentError as error:
        return [_reject(path, error.message)]
    items = [_pack_book(path, one, [name for name in names if is_in_book(name, one)], packed) for one in layouts]
    alone = [path / name for name in names if not any(is_in_book(name, one) for one in layouts) and _is_book(name)]
    for file in alone:
        is_notice = (NO_BOOK if layouts else NOTICE).search(file.relative_to(path).as_posix())
        items.append(_reject(file, "notice: a licence or a note about a book") if is_notice else _item_of_file(file))
    items += [_reject(Path(name), reason) for name, reason in tree.refused.items() if _is_book(name)]
    if not items:
        raise UsageError(f"{path}: no book in this folder", hint=f"formats: {FORMATS}")
    return items


def _is_book(name: str) -> bool:
    return name.lower().endswith((PDF, *SUFFIXES, *OTHERS)) or bool(suffix_of(name))


def _pack_book(path: Path, layout: BookLayout, names: Sequence[str], folder: Path) -> SourceItem:
    """Pack the files of a book into one archive in `folder`, named by its digest."""
    texts = [name for name in names if is_text_file(path / name)]
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=folder, delete=False) as draft:
        target = Path(draft.name)
    pack_files(path, texts, layout.root, target)
    digest = digest_of_file(target)
    archive = target.replace(folder / f"{digest}{ZIP}")
    root = path / (layout.root or "")
    source = _source(f"sha256:{digest}", root.name, str(root), "", sha256=digest, num_bytes=archive.stat().st_size)
    return SourceItem(source=source, path=archive, input=str(root))


def _reject(path: Path, reason: str) -> SourceItem:
    source = _source(f"file:{path}", path.name, str(path), reason)
    return SourceItem(source=source, path=None, input=str(path), stage="intake")


def _item_of_file(path: Path) -> SourceItem:
    digest, size, reason, suffix = "", 0, file_fault(path), path.suffix.lower()
    try:
        if not reason:
            digest, size = digest_of_file(path), path.stat().st_size
            if not size:
                reason = "empty: the file has no bytes"
            elif suffix in OTHERS or (not _is_book(path.name) and pdf_fault(path).startswith("not_pdf")):
                reason = f"format: {suffix or 'a file without a suffix'} is not read; taken are {FORMATS}"
    except OSError as error:
        reason = f"missing: {error.strerror}"
    name = f"sha256:{digest}" if digest else f"file:{path}"
    source = _source(name, path.name, str(path), reason, sha256="" if reason else digest, num_bytes=size)
    return SourceItem(source=source, path=None if reason else path, input=str(path), stage="intake" if reason else "")


def _source(source_id: str, title: str, address: str, reason: str, *, sha256: str = "", num_bytes: int = 0) -> Source:
    return Source(
        source_id=source_id,
        title=title,
        author="",
        discipline="",
        category="textbook",
        licence=BY_USER,
        licence_evidence=BY_USER,
        source_url=address,
        download_url=address,
        filename=Path(urlsplit(address).path).name if is_address(address) else Path(address).name,
        description="",
        sha256=sha256,
        num_bytes=num_bytes,
        status=REJECTED if reason else ADMITTED,
        reason=reason,
    )


def _fetch(urls: Sequence[str], folder: Path, config: "WebConfig", progress: Progress) -> list[SourceItem]:
    """Download the files at the addresses.

    A single address may have a private host, because the user typed it; addresses of a list and redirects may not.
    """
    from corpus.find.download import Holdings, download_sources

    if len(urls) == 1:
        host = identifiers.parts_of(urls[0]).hostname or ""
        config = replace(config, allowed_hosts=config.allowed_hosts | ({host} - {""}))
    sources = [_source(identifiers.url(url) or f"url:{url}", url, url, "") for url in urls]
    files, holdings = folder / "files", Holdings(folder / "books")
    rows, _ = download_sources(sources, lambda url: url, files, holdings, config, progress=progress)
    return [
        SourceItem(
            source=row,
            path=file_of(files, row.sha256) if row.status == ADMITTED else None,
            input=url,
            stage="" if row.status == ADMITTED else "download",
        )
        for url, row in zip(urls, rows, strict=True)
    ]


def reject_duplicate_items(items: Sequence[SourceItem]) -> list[SourceItem]:
    """Reject each item that has the bytes or the identifier of an earlier item; drop it if it is the same input."""
    owners: dict[str, SourceItem] = {}
    result = []
    for item in items:
        names = [item.source.source_id, *([f"sha256:{item.source.sha256}"] if item.source.sha256 else [])]
        first = next((owners[name] for name in names if name in owners), None)
        if first is None:
            owners.update(dict.fromkeys(names, item))
            result.append(item)
        elif item.input != first.input:
            # The reason why a catalogue's offer was rejected says more than that the book is a duplicate.
            reason = item.source.reason or f"duplicate of {first.input}"
            kind = "url" if item.stage == "search" else "file"
            source = replace(item.source, source_id=f"{kind}:{item.input}", status=REJECTED, reason=reason, sha256="")
            result.append(replace(item, source=source, path=None, stage=item.stage or "intake"))
    return result
