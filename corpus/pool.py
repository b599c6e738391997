"""A document pool on disk: what a build writes, and how a pool of any known format is read."""

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
from infuser_core.store.tables import foreign_rows, row_writer
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
    """One source that a build was given, and what became of it."""

    source_id: str
    """Canonical identifier; `sha256:` and the digest of its bytes for a file."""
    input: str
    """The file or address as given, or the catalogue's address of it."""
    title: str
    """Title as the catalogue gives it, or the file's name."""
    author: str
    """Authors, joined by "; "."""
    domain: str
    """Domain that its documents carry; empty when unknown."""
    subdomain: str
    """Subdomain that it was found for; empty when unknown."""
    licence: str
    """SPDX identifier, or `given by the user`."""
    licence_evidence: str
    """Where the licence was read."""
    sha256: str
    """Digest of the file's bytes; empty when there are none."""
    num_bytes: int
    """Size of the file, bytes."""
    converter: str
    """Converter name and version; empty when the source did not get so far."""
    chosen: str
    """Why this converter was taken."""
    num_pages: int
    """Pages of the file."""
    num_chars: int
    """Characters of its Markdown."""
    num_documents: int
    """Documents it gave."""
    num_discarded: int
    """Discarded spans with text."""
    markdown: str
    """Path of its Markdown below the pool's folder; empty when there is none."""
    status: str
    """admitted when it gave documents, else rejected."""
    stage: str
    """Where it was rejected: intake, search, download, convert, chunk, judge or overlap; empty when admitted."""
    reason: str
    """Why it was rejected; empty when admitted."""
    structure: str = ""
    """The cutter of front and back matter: `rules`, or a model's name; why a model that was asked did not."""
    markdown_sha256: str = ""
    """Digest of its Markdown; empty when there is none."""
    page_starts: list[int] = field(default_factory=list)
    """Offset in its Markdown at which each page's text begins, characters; empty where the converter does not know."""

    def entry(self) -> Source:
        """Its row in the registry of a run that reads the pool; the place of a file on the builder's disk stays out."""
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
        """Its conversion without the Markdown, which the pool's folder has."""
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
    """File name of a source's Markdown: the identifier, percent-encoded save for letters, digits and `_.-~:`.

    Decoding gives the identifier back, except for names over 200 bytes: they end in the digest of the identifier.
    """
    name = quote(source_id, safe=":")
    if len(name) > _NAME_BYTES:
        name = f"{name[:100]}~{hashlib.sha256(source_id.encode()).hexdigest()}"
    return f"{name.lstrip('.')}.md"


def refuse_imported(out: Path) -> None:
    """Raises UsageError for a folder that holds an imported pool."""
    if (out / IMPORTED).is_file():
        raise UsageError(f"{out} holds an imported pool", hint="name another folder with --out")


def build_name(out: Path) -> str:
    """Name under which the store knows the builds of a folder."""
    return f"corpus-{hashlib.sha256(str(out.resolve()).encode()).hexdigest()[:12]}"


def writing(out: Path) -> AbstractContextManager[None]:
    """Turn what the file system refuses into a StoreError that says what to do."""
    hint = "free some space, or name a folder you may write; finished steps are kept, the same command goes on"
    return durable.write_errors(out, hint=hint)


@contextmanager
def table_writer(path: Path, row_type: type) -> Iterator[Callable[[Any], None]]:
    """A function that adds a row to a parquet file, which is there whole or not at all."""
    with durable.replacing(path) as draft, row_writer(draft, row_type, group=_GROUP) as keep:
        yield keep


def write_table(path: Path, rows: Iterable[Any], row_type: type) -> None:
    """Write a parquet file whole or not at all; no more than a few thousand rows are in memory for it."""
    with table_writer(path, row_type) as keep:
        for row in rows:
            keep(row)


def copy_pool(source: Path, names: Sequence[str], out: Path) -> bool:
    """Make `out` hold the pool's files as they are in `source`; True when any of them was missing, other or stale.

    Markdown goes first, so that no row ever points to a missing text.
    """
    changed = False
    for name in sorted(names, key=lambda name: (not name.startswith(MARKDOWN), name)):
        if not _same(source / name, out / name):
            with durable.replacing(out / name) as draft:
                shutil.copyfile(source / name, draft)
            changed = True
    ours = [out / OVERLAPS, *(out / MARKDOWN).glob("*.md"), *(out / SEARCH).glob("*.parquet")]
    for path in ours:
        if path.is_file() and path.relative_to(out).as_posix() not in names:
            path.unlink()
            changed = True
    return changed


def _same(one: Path, other: Path) -> bool:
    return other.is_file() and filecmp.cmp(one, other, shallow=False)


def write_json(path: Path, value: Any) -> None:
    """Write JSON whole or not at all."""
    durable.write(path, json.dumps(value, ensure_ascii=False, indent=1) + "\n")


def pool_file(pool: Path) -> Path:
    """The documents of a pool's folder, or the file itself. Raises DocumentError when there is none."""
    path = pool / DOCUMENTS if pool.is_dir() else pool
    if not path.is_file():
        told = f"no {DOCUMENTS} there" if pool.is_dir() else "no such file or folder"
        raise DocumentError(
            f"{pool}: {told}",
            hint="name a folder written by `infuser corpus build`, or a parquet file of documents",
        )
    return path


def require_built(pool: Path) -> None:
    """Raises UsageError for a folder that is no built pool."""
    if not (pool / FACTS).is_file():
        raise UsageError(f"{pool} is no pool of `infuser corpus build`: it has no {FACTS}", hint="build it first")


def read_facts(pool: Path) -> dict[str, Any]:
    """The facts of a built pool's report."""
    return dict(json.loads((pool / FACTS).read_text()))


def registry_of(pool: Path) -> Path | None:
    """The folder whose registry tells of the pool's documents; None for documents without one."""
    file = pool_file(pool)
    return file.parent if file.name == DOCUMENTS and file.with_name(SOURCES).is_file() else None


def read_sources(pool: Path) -> list[PoolSource]:
    """Outcome of the sources of a built pool."""
    return list(typed_rows(pool / SOURCES, PoolSource))


def typed_rows(path: Path, row_type: type[Row]) -> Iterator[Row]:
    """Rows of a pool's table; a column that an older build did not write has its default.

    Raises DocumentError for a file that is no parquet file or lacks columns.
    """
    known = fields(row_type)  # type: ignore[arg-type]
    needed = [one.name for one in known if one.default is MISSING and one.default_factory is MISSING]
    for row in foreign_rows(path):
        missing = [name for name in needed if name not in row]
        if missing:
            raise DocumentError(
                f"{path} lacks the columns {', '.join(missing)}", hint="bring it in with `infuser corpus convert`"
            )
        yield row_type(**{one.name: row[one.name] for one in known if one.name in row})
