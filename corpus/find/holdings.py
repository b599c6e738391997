"""Downloaded books of all runs: a folder of files, and a registry of rows that only grows.

`registry.jsonl` has one JSON object per line, appended under a lock and synced before the lock is given back. A line
that a crash cut off has no end of line and is dropped by the next writer. The last row of a source counts.
"""

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from threading import Lock
from typing import BinaryIO

from corpus.find.registry import ADMITTED
from corpus.read.file_kinds import file_of
from infuser_core import durable
from infuser_core.errors import StoreError
from infuser_core.schemas import Source

ROWS = "registry.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding(Source):
    """One book as fetched, under the identifier and for the pair that it was first found for."""

    identifiers: list[str]
    """Every canonical identifier it goes by, the digest of its bytes included."""
    urls: list[str]
    """Every address it was found or fetched at."""
    downloaded_on: str
    """Moment of the download or of its failure, ISO 8601, UTC."""


def holding_of(source: Source, names: Sequence[str], downloaded_on: str) -> Holding:
    """The registry's row for a source, known under `names`."""
    digest = [f"sha256:{source.sha256}"] if source.sha256 else []
    urls = [url for url in (source.download_url, source.source_url) if url]
    return Holding(
        identifiers=list(dict.fromkeys([source.source_id, *names, *digest])),
        urls=list(dict.fromkeys(urls)),
        downloaded_on=downloaded_on,
        **asdict(source),
    )


class Holdings:
    """The folder. Several processes and threads may use it at one time; it must lie on a local file system."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known: dict[str, Holding] = {}
        self._end = 0
        self._reading = Lock()
        for name in ("", "files", "parts", "locks"):
            (folder / name).mkdir(parents=True, exist_ok=True)

    def file(self, sha256: str) -> Path:
        """Where the bytes with this digest lie, or would lie."""
        return file_of(self.folder / "files", sha256)

    def part(self, source_id: str) -> Path:
        """Where an unfinished download of a source lies, for the next attempt to continue."""
        return self.folder / "parts" / f"{_short(source_id)}.part"

    def rows(self) -> list[Holding]:
        """The last row of every source, in the order of their first rows. Raises StoreError for a damaged line."""
        with self._reading:
            self._read_on()
            return list(self._known.values())

    def find(self, names: Sequence[str]) -> Holding | None:
        """The admitted book that goes by any of the names and whose file is there, undamaged."""
        wanted = set(names)
        for row in self.rows():
            if row.status == ADMITTED and not wanted.isdisjoint(row.identifiers) and self._is_whole(row.sha256):
                return row
        return None

    def _is_whole(self, sha256: str) -> bool:
        """Whether the file has its digest: it may share its bytes on disk with a copy that somebody changed."""
        path = self.file(sha256)
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == sha256

    @contextlib.contextmanager
    def claim(self, names: Sequence[str]) -> Iterator[None]:
        """Keep everybody else from fetching a book that goes by any of the names; ends with the process at the latest.

        Waits while another one fetches it. Locks are taken in one order, so that two claims cannot wait for each other.
        """
        with contextlib.ExitStack() as stack:
            for name in sorted({_short(name) for name in names}):
                file = stack.enter_context((self.folder / "locks" / name).open("w"))
                fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def keep(self, draft: Path, holding: Holding, suffix: str) -> Holding:
        """Take a checked file and its row into the folder; the file first, so that a row never lacks one.

        Bytes that are there under another name become one book: its row then lists the names and addresses of both,
        and is what comes back.
        """
        with self._writing() as file:
            same = [row for row in self.rows() if row.sha256 == holding.sha256 and row.status == ADMITTED]
            target = self.folder / "files" / f"{holding.sha256}{suffix}"
            draft.replace(target)
            durable.fsync(target.parent)
            kept = joined(same[0], holding) if same else holding
            self._append(file, kept)
            return kept

    def note(self, holding: Holding) -> None:
        """Add a row without a file: a failed download, or a book found under another name."""
        with self._writing() as file:
            self._append(file, holding)

    def _read_on(self) -> None:
        """Take in the lines that were added since the last look; a file that shrank is read from its start."""
        path = self.folder / ROWS
        size = path.stat().st_size if path.is_file() else 0
        if size < self._end:
            self._known, self._end = {}, 0
        if size == self._end:
            return
        with path.open("rb") as file:
            file.seek(self._end)
            whole, _, _ = file.read().rpartition(b"\n")
        for line in whole.split(b"\n") if whole else []:
            try:
                row = Holding(**json.loads(line))
            except (ValueError, TypeError) as error:
                raise StoreError(
                    f"{path}: {line[:60]!r} is no registry row: {error}",
                    hint="remove the line; its book will be fetched again",
                ) from error
            self._known[row.source_id] = row
        self._end += len(whole) + 1 if whole else 0

    @contextlib.contextmanager
    def _writing(self) -> Iterator[BinaryIO]:
        with (self.folder / ROWS).open("a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file

    def _append(self, file: BinaryIO, holding: Holding) -> None:
        """One line at the end, in the place of what a crash may have left there."""
        with self._reading:
            self._read_on()
        file.truncate(self._end)
        file.write(json.dumps(asdict(holding), ensure_ascii=False).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def joined(first: Holding, second: Holding) -> Holding:
    """One row for two finds of the same book: the first's, with the names and addresses of both."""
    return replace(
        first,
        identifiers=list(dict.fromkeys([*first.identifiers, *second.identifiers])),
        urls=list(dict.fromkeys([*first.urls, *second.urls])),
    )


def _short(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:16]
