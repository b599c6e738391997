"""Journals of runs: append-only logs with a line for each stage that ran, was found in the store, or failed.

An attempt is one start of the run. Each line ends with a seal: a checksum of the line and of the previous line's seal.
A file of the same name with the suffix `.head` holds the last seal and the offset of its line's end, so that a
truncated journal is detected. An incomplete line after that offset, left by a killed process, does not count as damage.
"""

import fcntl
import json
import os
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from infuser_core.errors import DamagedArtifactError
from infuser_core.system import durable, sealed

RUNS = "runs"
"""Folder of the store with the records of runs."""
FINISHED = "run"
"""Pseudo-stage that ends a complete attempt."""
ASIDE = ".damaged.jsonl"
"""Suffix of the copy of a damaged journal, kept until its run is repaired."""
_TICK_NS = 1000
_CHECKSUM_CHARS = 16
_HEAD_READS = 3
_RETRY_SECONDS = 0.002


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A line of a journal: the result of one stage in one attempt."""

    attempt: int
    """Number of the attempt (start of the run), from 1."""
    phase: str
    """Phase of the stage."""
    iteration: int
    """Co-training iteration, or -1 outside the loop."""
    key: str
    """Artifact key."""
    digest: str
    """Artifact digest; empty for a failed stage."""
    state: str
    """ran, cached, failed, stopped or killed; done for the line that ends a complete attempt."""
    seconds: float
    """Wall-clock time of the stage in this attempt, seconds."""
    rows: int
    """Total number of rows in the artifact's tables."""
    message: str
    """Why the stage failed, or how it was killed; empty otherwise."""
    at: float = 0.0
    """Time at which the line was written, seconds since the epoch; 0 in lines of older versions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Head:
    """Content of the `.head` file: the state of a journal after its last line."""

    attempt: int = 0
    """The newest attempt."""
    end: int = 0
    """Total size of the complete lines, bytes."""
    finished: bool = False
    """Whether the last line ends a complete attempt."""
    seal: str = ""
    """Seal of the last line; empty if no line has one."""

    def to_bytes(self) -> bytes:
        """Serialize as a line of constant length with a checksum; overwriting it needs no space on a full disk."""
        text = f"{self.attempt:08d} {self.end:014d} {self.finished:d} {self.seal or '-':16} "
        return f"{text}{sealed.checksum(text.encode())}\n".encode()

    @staticmethod
    def of(line: bytes) -> "_Head":
        """Parse the line of a `.head` file. Raises ValueError if it is damaged."""
        text, checksum = line[: -_CHECKSUM_CHARS - 1], line[-_CHECKSUM_CHARS - 1 :]
        if checksum != f"{sealed.checksum(text)}\n".encode():
            raise ValueError("its content changed since it was written")
        attempt, end, finished, seal = text.split()
        return _Head(attempt=int(attempt), end=int(end), finished=finished == b"1", seal=seal.decode().replace("-", ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalState:
    """Content of a journal at one time; of a damaged one the readable lines, which may be incomplete or altered."""

    entries: Sequence[Entry]
    """All readable lines."""
    attempt: int
    """The newest attempt; 0 if unknown."""
    is_finished: bool
    """Whether the newest attempt completed."""
    damage: str
    """Description of the damage; empty for an undamaged journal."""
    torn: int
    """Line number, from 1, of an incomplete last line left by a killed process; 0 if there is none."""

    @property
    def was_finished(self) -> bool:
        """Whether any attempt completed."""
        return self.is_finished or any(entry.phase == FINISHED for entry in self.entries)


class Journal:
    """Reads and appends to the journal of a run or an evaluation."""

    def __init__(self, root: Path, run: str, *, file: str = "journal.jsonl", shelf: str = RUNS) -> None:
        self.path = root / shelf / run / file
        self._head_path = self.path.with_suffix(".head")
        self._attempt: int | None = None
        self._lock = threading.Lock()

    @property
    def attempt(self) -> int:
        """Number of this attempt; `start_attempt` must have been called."""
        assert self._attempt is not None, "start_attempt comes first"
        return self._attempt

    def start_attempt(self) -> int:
        """Begin a new attempt and return its number. Raises DamagedArtifactError for a damaged journal."""
        with self._lock:
            chain, head = self._sound(), self._head()
            self._attempt = max((entry.attempt for entry in _entries(chain.lines)), default=0) + 1
            finished = head.finished if head else False
            head = _Head(attempt=self._attempt, end=chain.end, finished=finished, seal=chain.seals[chain.end])
            # Lets gc see an attempt that has no entries yet. Do not stop because of a full disk.
            with suppress(OSError):
                self._write_head(head, durably=True)
        return self._attempt

    def is_known(self) -> bool:
        """Whether the journal or its head exists."""
        return self.path.exists() or self._head_path.exists()

    def append(
        self,
        *,
        phase: str,
        iteration: int,
        state: str,
        seconds: float,
        key: str = "",
        digest: str = "",
        rows: int = 0,
        message: str = "",
        attempt: int | None = None,
    ) -> None:
        """Append one line durably, for this attempt unless `attempt` names an earlier one.

        Raises StoreError if it cannot be written.
        """
        entry = Entry(
            attempt=self.attempt if attempt is None else attempt,
            phase=phase,
            iteration=iteration,
            key=key,
            digest=digest,
            state=state,
            seconds=round(seconds, 4),
            rows=rows,
            message=message,
            at=round(time.time(), 3),
        )
        hint = "free some space, then `infuser resume`: what is committed is kept"
        with durable.write_errors(self.path, hint=hint), self._lock, self._appending() as (handle, head):
            line, seal = sealed.line(asdict(entry), head.seal)
            handle.write(line)
            handle.flush()
            os.fsync(handle.fileno())
            head = _Head(attempt=self.attempt, end=head.end + len(line), finished=phase == FINISHED, seal=seal)
            self._write_head(head, durably=phase == FINISHED)
        make_newest(self.path)

    @contextmanager
    def _appending(self) -> Iterator[tuple[IO[bytes], _Head]]:
        """Open and lock the file for appending a line; yields the file and its head."""
        with self.path.open("ab") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            head = self._head()
            if head is None or os.fstat(handle.fileno()).st_size != head.end:
                chain = self._sound()
                head = _Head(attempt=self.attempt, end=chain.end, seal=chain.seals[chain.end])
                # Cut off an incomplete line, left by a kill or a full disk: the next line must not continue it.
                handle.truncate(chain.end)
                self._write_head(head, durably=True)
            yield handle, head

    def _write_head(self, head: _Head, *, durably: bool) -> None:
        handle = os.open(self._head_path, os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            os.write(handle, head.to_bytes())
            if durably:
                os.fsync(handle)
        finally:
            os.close(handle)

    def _head(self) -> _Head | None:
        """Read the journal's head; None if it is missing or damaged."""
        for _ in range(_HEAD_READS):
            try:
                return _Head.of(self._head_path.read_bytes())
            except FileNotFoundError:
                return None
            except ValueError:
                # Retry: another process may be writing it.
                time.sleep(_RETRY_SECONDS)
        return None

    def finish(self) -> None:
        """Append the line that marks this attempt as complete: it ran or found every artifact of the run."""
        self.append(phase=FINISHED, iteration=-1, state="done", seconds=0.0)

    def entries(self) -> list[Entry]:
        """All entries in the order of the file. Raises DamagedArtifactError for a damaged journal."""
        return _entries(self._sound().lines)

    def read_state(self) -> JournalState:
        """Read the journal as it is now, damaged or not."""
        data, head, chain, damage = self._read()
        entries = _entries(data.split(b"\n"))
        is_aside = self.path.name.endswith(ASIDE)
        return JournalState(
            entries=entries,
            attempt=head.attempt if head else 0,
            is_finished=head.finished if head else bool(entries) and entries[-1].phase == FINISHED,
            damage="a damaged journal, whose run is not repaired yet" if is_aside else damage,
            torn=chain.torn,
        )

    def set_aside(self) -> Path:
        """Save a copy of a damaged journal and cut the journal to its undamaged lines; returns the copy's path."""
        data, _, chain, _ = self._read()
        former = self.path.with_suffix(f".{uuid.uuid4().hex[:8]}{ASIDE}")
        if self._head_path.exists():
            durable.write(former.with_suffix(".head"), self._head_path.read_bytes())
        durable.write(former, data)
        if not chain.end:
            # Do not leave an empty journal: it would mean that there was no attempt yet.
            self.path.unlink(missing_ok=True)
            self._head_path.unlink(missing_ok=True)
            return former
        durable.write(self.path, data[: chain.end])
        attempt = max((entry.attempt for entry in _entries(chain.lines)), default=0)
        self._write_head(_Head(attempt=attempt, end=chain.end, seal=chain.seals[chain.end]), durably=True)
        return former

    def _sound(self) -> sealed.Chain:
        _, _, chain, damage = self._read()
        if damage:
            hint = "`infuser doctor --repair` makes it anew from what the store holds"
            raise DamagedArtifactError(f"{self.path}: {damage}", hint=hint)
        return chain

    def _read(self) -> tuple[bytes, _Head | None, sealed.Chain, str]:
        """Read the journal: content, head, lines, and a description of the damage, empty if there is none."""
        # Read the head first: a process that appends writes the line before the head.
        has_head, head = self._head_path.exists(), self._head()
        data = self.path.read_bytes() if self.path.exists() else b""
        chain = sealed.chain(data)
        damage = ""
        if chain.beyond:
            damage = f"line {len(chain.lines) + 1} is not as it was written"
        elif head is None:
            # Journals of older versions have no head.
            damage = "its head is damaged" if has_head else "its head is lost" if chain.sealed else ""
        elif head.end > chain.end:
            damage = f"its end is lost, {head.end - chain.end} bytes"
        elif chain.seals.get(head.end) != head.seal:
            damage = "it does not match its head"
        return data, head, chain, damage

    def latest(self) -> list[Entry]:
        """The newest entry of each artifact of the run. Raises DamagedArtifactError for a damaged journal.

        Leaves out artifacts that only attempts before the last complete one have, from other code or other inputs: a
        complete attempt lists every artifact of the run.
        """
        return newest_entries(self.entries())

    def last_attempt(self) -> list[Entry]:
        """Entries of the newest attempt, without the line that ends it.

        Raises DamagedArtifactError for a damaged journal.
        """
        return entries_of_last_attempt(self.entries())

    def is_finished(self) -> bool:
        """Whether the newest attempt completed. Raises DamagedArtifactError for a damaged journal."""
        entries = self.entries()
        return bool(entries) and entries[-1].phase == FINISHED


def newest_entries(entries: Iterable[Entry]) -> list[Entry]:
    """The newest entry of each artifact that was computed or cached in the last complete attempt or later."""
    entries = list(entries)
    complete = max((entry.attempt for entry in entries if entry.phase == FINISHED), default=0)
    newest: dict[tuple[str, int, str], Entry] = {}
    for entry in entries:
        if entry.attempt >= complete and entry.state in ("ran", "cached"):
            newest[(entry.phase, entry.iteration, entry.key)] = entry
    return list(newest.values())


def entries_of_last_attempt(entries: Iterable[Entry]) -> list[Entry]:
    """Entries of the newest attempt, without the line that ends it."""
    entries = list(entries)
    last = max((entry.attempt for entry in entries), default=0)
    return [entry for entry in entries if entry.attempt == last and entry.phase != FINISHED]


def make_newest(journal: Path) -> None:
    """Set this journal's modification time after that of all other runs' journals, which marks the latest run.

    Works even if the clock was set back.
    """
    newest = 0
    # scandir, as glob takes more than twice the time, and this is called for every line of every run of a sweep.
    for folder in os.scandir(journal.parent.parent):
        if folder.name != journal.parent.name:
            with suppress(OSError):
                newest = max(newest, os.lstat(f"{folder.path}/{journal.name}").st_mtime_ns)
    if journal.stat().st_mtime_ns <= newest:
        os.utime(journal, ns=(newest + _TICK_NS, newest + _TICK_NS))


def _entries(lines: Sequence[bytes]) -> list[Entry]:
    """Parse the readable lines into entries; skips the others."""
    try:
        # Parse all lines as one JSON array: three times faster than one by one.
        full_lines = [line for line in lines if line]
        records = json.loads(b"[" + b",".join(full_lines) + b"]")
        if len(records) == len(full_lines):
            return [_entry(fields) for fields in records]
    except (ValueError, TypeError, AttributeError):
        pass
    entries = []
    for line in lines:
        with suppress(ValueError, TypeError, AttributeError):
            entries.append(_entry(json.loads(line)))
    return entries


def _entry(fields: dict[str, Any]) -> Entry:
    fields.pop("seal", None)
    return Entry(**fields)
