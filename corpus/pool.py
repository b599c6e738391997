"""Read and write the folder of a document pool: parquet tables, Markdown of the sources, and report."""

import filecmp
import hashlib
import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar
from urllib.parse import quote

from infuser_core.errors import DocumentError, UsageError
from infuser_core.schemas import Page, Source
from infuser_core.store.tables import read_foreign_rows, row_writer
from infuser_core.system import durable

Row = TypeVar("Row")

DOCUMENTS, DISCARDED, SOURCES = "documents.parquet", "discarded.parquet", "sources.parquet"
MARKDOWN, REPORT, FACTS, WORK = "markdown", "report.md", "report.json", ".work"
OVERLAPS, SEARCH = "overlaps.parquet", "search"
IMPORTED = "import.json"
_NAME_BYTES = 200
_GROUP = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSource:
    """Row of a pool's table of sources: a book or file, and what the build made of it."""

    source_id: str
    """Canonical identifier; `sha256:` and the digest of its bytes for a file."""
    input: str
    """The file or address as the user wrote it, or its address in the catalogue."""
    title: str
    """Title as the catalogue gives it, or the file's name."""
    author: str
    """Authors, joined by "; "."""
    domain: str
    """Domain of its documents; empty if unknown."""
    subdomain: str
    """Subdomain for which it was found; empty if unknown."""
    licence: str
    """SPDX identifier, or `given by the user`."""
    licence_evidence: str
    """Field and value from which the licence was read."""
    sha256: str
    """Digest of the file's bytes; empty without a file."""
    num_bytes: int
    """Size of the file, bytes."""
    converter: str
    """Converter name and version; empty if the source was rejected before."""
    chosen: str
    """Reason for this converter."""
    num_pages: int
    num_chars: int
    """Characters of its Markdown."""
    num_documents: int
    num_discarded: int
    """Discarded spans with text."""
    markdown: str
    """Path of its Markdown below the pool's folder; empty if there is none."""
    status: str
    """admitted if it has documents, else rejected."""
    stage: str
    """Stage that rejected it: intake, search, download, convert, chunk, judge or overlap; empty if admitted."""
    reason: str
    """Why it was rejected; empty if admitted."""
    structure: str = ""
    """`rules` or the name of the model that found front and back matter, and why a model could not."""
    markdown_sha256: str = ""
    """Digest of its Markdown; empty if there is none."""
    doubt: float = 0.0
    """Share of its characters in chunks that were dropped because they may read differently than the book."""
    doubtful_for: str = ""
    """Reason of most of these characters; empty if there are none."""
    page_starts: list[int] = field(default_factory=list)
    """Offset in its Markdown at which each page's text begins, characters; empty if the converter does not know."""

    def entry(self) -> Source:
        """Convert to a row of the source registry of a run that reads the pool, without paths on the builder's disk."""
        address = self.input if "://" in self.input else ""
        return Source(
            source_id=self.source_id,
            title=self.title,
            author=self.author,
            discipline=self.domain,
            category="",
            licence=self.licence,
            licence_evidence=self.licence_evidence,
            source_url=address,
            download_url=address,
            filename=PurePosixPath(self.input).name,
            description="",
            sha256=self.sha256,
            num_bytes=self.num_bytes,
            status=self.status,
            reason=self.reason,
        )

    def page(self) -> Page:
        """Convert to the record of the source's conversion, without the Markdown, which is a file of the pool."""
        return Page(
            source_id=self.source_id,
            markdown="",
            sha256=self.markdown_sha256,
            num_pages=self.num_pages,
            converter=self.converter,
            status="converted",
            reason="",
            chosen=self.chosen,
            page_starts=self.page_starts,
        )


def markdown_name(source_id: str) -> str:
    """File name of a source's Markdown: the identifier, percent-encoded except for letters, digits and `_.-~:`.

    Decoding gives the identifier, except for names over 200 bytes: they end in the digest of the identifier.
    """
    name = quote(source_id, safe=":")
    if len(name) > _NAME_BYTES:
        name = f"{name[:100]}~{hashlib.sha256(source_id.encode()).hexdigest()}"
    return f"{name.lstrip('.')}.md"


def refuse_other_folder(out: Path) -> None:
    """Raises UsageError if the folder holds an imported pool, or files but no pool."""
    hint = "name another folder with --out"
    if (out / IMPORTED).is_file():
        raise UsageError(f"{out} holds an imported pool", hint=hint)
    names = [] if (out / DOCUMENTS).is_file() else sorted(path.name for path in out.glob("[!.]*"))
    others = [name for name in names if name not in (DISCARDED, SOURCES, MARKDOWN, REPORT, FACTS, OVERLAPS, SEARCH)]
    if others:
        more = f" and {len(others) - 1} more" if len(others) > 1 else ""
        raise UsageError(f"{out} holds other files: {others[0]}{more}", hint=hint)


def build_name(out: Path) -> str:
    """Name under which the store lists the builds of a pool in the folder `out`."""
    return f"corpus-{hashlib.sha256(str(out.resolve()).encode()).hexdigest()[:12]}"


def write_errors(out: Path) -> AbstractContextManager[None]:
    """Context that turns errors of the file system into a StoreError with a remedy."""
    hint = "free some space, or name a folder you may write; finished steps are kept, the same command continues"
    return durable.write_errors(out, hint=hint)


@contextmanager
def table_writer(path: Path, row_type: type) -> Iterator[Callable[[Any], None]]:
    """Open a parquet file and yield a function that adds a row; the file is written completely or not at all."""
    with durable.replacing(path) as draft, row_writer(draft, row_type, group=_GROUP) as add:
        yield add


def write_table(path: Path, rows: Iterable[Any], row_type: type) -> None:
    """Write rows to a parquet file, completely or not at all; at most a few thousand rows are in memory."""
    with table_writer(path, row_type) as add:
        for row in rows:
            add(row)


def copy_pool(source: Path, names: Sequence[str], out: Path) -> bool:
    """Copy the pool files `names` from `source` to `out` and delete stale ones there; returns whether anything changed.

    Markdown is copied first, so that no row ever points to a missing text.
    """
    changed = False
    for name in sorted(names, key=lambda name: (not name.startswith(MARKDOWN), name)):
        if not (out / name).is_file() or not filecmp.cmp(source / name, out / name, shallow=False):
            with durable.replacing(out / name) as draft:
                shutil.copyfile(source / name, draft)
            changed = True
    ours = [out / OVERLAPS, *(out / MARKDOWN).glob("*.md"), *(out / SEARCH).glob("*.parquet")]
    for path in ours:
        if path.is_file() and path.relative_to(out).as_posix() not in names:
            path.unlink()
            changed = True
    return changed


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file, completely or not at all."""
    durable.write(path, json.dumps(value, ensure_ascii=False, indent=1) + "\n")


def pool_file(pool: Path) -> Path:
    """Path of a pool's file of documents; `pool` is its folder or the file. Raises DocumentError if there is none."""
    path = pool / DOCUMENTS if pool.is_dir() else pool
    if not path.is_file():
        problem = f"no {DOCUMENTS} there" if pool.is_dir() else "no such file or folder"
        raise DocumentError(
            f"{pool}: {problem}",
            hint="name a folder written by `infuser corpus build`, or a parquet file of documents",
        )
    return path


def require_built(pool: Path) -> None:
    """Raises UsageError if the folder is not a built pool."""
    if not (pool / FACTS).is_file():
        raise UsageError(f"{pool} is no pool of `infuser corpus build`: it has no {FACTS}", hint="build it first")


def read_facts(pool: Path) -> dict[str, Any]:
    """Read the figures of a built pool's report."""
    return dict(json.loads((pool / FACTS).read_text()))


def registry_of(pool: Path) -> Path | None:
    """Folder of the pool if it has a table of sources; None if the pool consists of documents only."""
    file = pool_file(pool)
    return file.parent if file.name == DOCUMENTS and file.with_name(SOURCES).is_file() else None


def read_sources(pool: Path) -> list[PoolSource]:
    """Read the sources of a built pool."""
    return list(typed_rows(pool / SOURCES, PoolSource))


def typed_rows(path: Path, row_type: type[Row]) -> Iterator[Row]:
    """Read the rows of a pool's table; columns that an older build did not write get their defaults.

    Raises DocumentError if the file is not parquet or lacks columns.
    """
    columns = fields(row_type)  # type: ignore[arg-type]
    needed = [column.name for column in columns if column.default is MISSING and column.default_factory is MISSING]
    for row in read_foreign_rows(path):
        missing = [name for name in needed if name not in row]
        if missing:
            raise DocumentError(
                f"{path} lacks the columns {', '.join(missing)}", hint="bring it in with `infuser corpus convert`"
            )
        yield row_type(**{column.name: row[column.name] for column in columns if column.name in row})
