"""Sources that a build is given: files, folders and addresses, each with a file or a reason."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from corpus.find import identifiers
from corpus.find.registry import ADMITTED, REJECTED
from corpus.read.books.format import BookLayout
from corpus.read.books.library import ZIP, find_books, is_in_book, suffix_of
from corpus.read.books.tree import Folder, file_fault, is_text_file, pack_files
from corpus.read.file_kinds import PDF, SUFFIXES, file_of
from infuser_core.errors import DocumentError, UsageError
from infuser_core.protocols import Progress, no_progress
from infuser_core.schemas import Source
from infuser_core.system.sealed import digest_of_file

if TYPE_CHECKING:
    from corpus.find.guard import WebConfig

GIVEN = "given by the user"
OTHERS = (".doc", ".ppt", ".mobi", ".azw3", ".djvu", ".ps", ".eps", ".dvi", ".gz", ".bz2", ".xz", ".tar", ".7z", ".rar")
"""Books that no converter reads: those of a folder are listed with that as their reason."""
TAKEN = "PDF, Markdown, text, EPUB, HTML, DOCX, ODT, LaTeX, AsciiDoc, reStructuredText, notebooks, Quarto, CNXML, ZIP"


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One source and its file."""

    source: Source
    """The registry row; rejected with a reason where there is no file."""
    path: Path | None
    """The file; None when there is none."""
    given: str
    """The file or address as given."""
    subdomain: str = ""
    """Subdomain that it was found for."""
    stage: str = ""
    """Where it was rejected; empty when there is a file."""


def gather(
    given: Sequence[str], out: Path, folder: Path, config: "WebConfig", *, progress: Progress = no_progress
) -> list[Item]:
    """Every named source with its file or its reason, once: files first, then addresses.

    What lies in `out` is no source; `folder` keeps what was fetched. Raises UsageError for a folder without any book.
    """
    addresses = list(dict.fromkeys(text for text in given if is_address(text)))
    files = [item for text in given if not is_address(text) for item in _from_disk(text, out, folder / "packed")]
    return without_twins([*files, *(_fetched(addresses, folder, config, progress) if addresses else [])])


def is_address(text: str) -> bool:
    """Whether a source is named by address."""
    return identifiers.parts_of(text).scheme in identifiers.WEB


def _from_disk(text: str, out: Path, folder: Path) -> list[Item]:
    """A local file, or the books of a local folder; those of several files are packed below `folder`."""
    if "://" in text:
        source = _source(f"file:{text}", text, text, "address: only http and https are fetched")
        return [Item(source=source, path=None, given=text, stage="intake")]
    path = Path(text)
    return _of_folder(path, out, folder) if path.is_dir() else [_of_file(path)]


def _of_folder(path: Path, out: Path, packed: Path) -> list[Item]:
    """The books of several parts below a folder, packed, then the files that are books of their own, in order."""
    tree, pool = Folder(path), out.resolve()
    try:
        names = [name for name in tree.names() if pool not in (path / name).resolve().parents]
        layouts = [one for one in find_books(tree) if any(part.name in names for part in one.parts)]
    except DocumentError as error:
        return [_refused(path, error.message)]
    items = [_packed(path, one, [name for name in names if is_in_book(name, one)], packed) for one in layouts]
    alone = [path / name for name in names if not any(is_in_book(name, one) for one in layouts) and _is_book(name)]
    items += [_of_file(each) for each in alone]
    items += [_refused(Path(name), reason) for name, reason in tree.refused.items() if _is_book(name)]
    if not items:
        raise UsageError(f"{path}: no book in this folder", hint=f"files that are taken: {TAKEN}")
    return items


def _is_book(name: str) -> bool:
    return name.lower().endswith((PDF, *SUFFIXES, *OTHERS)) or bool(suffix_of(name))


def _packed(path: Path, layout: BookLayout, names: Sequence[str], folder: Path) -> Item:
    """A book of several files as one archive below `folder`, named by its digest."""
    texts = [name for name in names if is_text_file(path / name)]
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=folder, delete=False) as draft:
        target = Path(draft.name)
    pack_files(path, texts, layout.root, target)
    digest = digest_of_file(target)
    archive = target.replace(folder / f"{digest}{ZIP}")
    given = str(path / (layout.root or ""))
    source = replace(_source(f"sha256:{digest}", Path(given).name, given, ""), sha256=digest)
    return Item(source=replace(source, num_bytes=archive.stat().st_size), path=archive, given=given)


def _refused(path: Path, reason: str) -> Item:
    return Item(
        source=_source(f"file:{path}", path.name, str(path), reason), path=None, given=str(path), stage="intake"
    )


def _of_file(path: Path) -> Item:
    digest, size, reason, suffix = "", 0, file_fault(path), path.suffix.lower()
    try:
        if not reason:
            digest, size = digest_of_file(path), path.stat().st_size
            if not size:
                reason = "empty: the file has no bytes"
            elif suffix in OTHERS:
                reason = f"format: {suffix} is not read; taken are {TAKEN}"
    except OSError as error:
        reason = f"missing: {error.strerror}"
    name = f"sha256:{digest}" if digest else f"file:{path}"
    source = _source(name, path.name, str(path), reason, sha256="" if reason else digest, num_bytes=size)
    return Item(source=source, path=None if reason else path, given=str(path), stage="intake" if reason else "")


def _source(source_id: str, title: str, address: str, reason: str, *, sha256: str = "", num_bytes: int = 0) -> Source:
    return Source(
        source_id=source_id,
        title=title,
        author="",
        discipline="",
        category="textbook",
        licence=GIVEN,
        licence_evidence=GIVEN,
        source_url=address,
        download_url=address,
        filename=Path(urlsplit(address).path).name if is_address(address) else Path(address).name,
        description="",
        sha256=sha256,
        num_bytes=num_bytes,
        status=REJECTED if reason else ADMITTED,
        reason=reason,
    )


def _fetched(urls: Sequence[str], folder: Path, config: "WebConfig", progress: Progress) -> list[Item]:
    """Addresses, fetched. The only one may be of a private host, since somebody typed it; those of a list may not, and
    where any redirects to may not either."""
    from corpus.find.download import Holdings, download

    if len(urls) == 1:
        host = identifiers.parts_of(urls[0]).hostname or ""
        config = replace(config, allowed_hosts=config.allowed_hosts | ({host} - {""}))
    sources = [_source(identifiers.url(url) or f"url:{url}", url, url, "") for url in urls]
    files, shelf = folder / "files", Holdings(folder / "books")
    rows, _ = download(sources, lambda url: url, files, shelf, config, progress=progress)
    return [
        Item(
            source=row,
            path=file_of(files, row.sha256) if row.status == ADMITTED else None,
            given=url,
            stage="" if row.status == ADMITTED else "download",
        )
        for url, row in zip(urls, rows, strict=True)
    ]


def without_twins(items: Sequence[Item]) -> list[Item]:
    """The first item of equal bytes or equal identifier stays; later ones are rejected as its duplicates."""
    owners: dict[str, Item] = {}
    result = []
    for item in items:
        names = [item.source.source_id, *([f"sha256:{item.source.sha256}"] if item.source.sha256 else [])]
        first = next((owners[name] for name in names if name in owners), None)
        if first is None:
            owners.update(dict.fromkeys(names, item))
            result.append(item)
        elif item.given != first.given:
            # What a catalogue's offer was refused for says more than that it names a book twice.
            reason = item.source.reason or f"duplicate of {first.given}"
            kind = "url" if item.stage == "search" else "file"
            source = replace(item.source, source_id=f"{kind}:{item.given}", status=REJECTED, reason=reason, sha256="")
            result.append(replace(item, source=source, path=None, stage=item.stage or "intake"))
    return result
