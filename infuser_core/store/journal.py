"""Journals: append-only, sealed records of what each attempt of a run ran, found cached, or failed at.

Each line ends with a seal: a checksum over the line and the seal of the line before. A file of the same name that ends
in `.head` tells the last line and where it ends, so that a lost end is seen, too. What a kill tore off in the middle of
a line was never told by the head, and is no damage.
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
"""End of the name of a damaged journal that waits for the repair of its run."""
_TICK_NS = 1000
_CHECK = 16
_LOOKS = 3
_INSTANT = 0.002


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A line of a journal: one stage of one attempt."""

    attempt: int
    """Count of starts of the run, from 1."""
    phase: str
    """Stage name."""
    iteration: int
    """Co-training iteration, or -1 outside the loop."""
    key: str
    """Artifact key."""
    digest: str
    """Artifact digest; empty for a failed stage."""
    state: str
    """ran, cached, failed, stopped or killed; done for the end of a complete attempt."""
    seconds: float
    """Wall-clock time of the stage in this attempt, seconds."""
    rows: int
    """Rows of all tables."""
    message: str
    """Why it failed, or how it was killed; empty otherwise."""
    at: float = 0.0
    """When the line was written, seconds since the epoch; 0 where an older version wrote it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Head:
    """The state of a journal after its last line."""

    attempt: int = 0
    """Attempt that began last."""
    end: int = 0
    """Bytes of whole lines."""
    finished: bool = False
    """Whether the last line ends a complete attempt."""
    seal: str = ""
    """Seal of the last line; empty where none has one."""

    def to_bytes(self) -> bytes:
        """One line of constant length with a checksum: written in place, it needs no room on a full disk."""
        text = f"{self.attempt:08d} {self.end:014d} {self.finished:d} {self.seal or '-':16} "
        return f"{text}{sealed.checksum(text.encode())}\n".encode()

    @staticmethod
    def of(line: bytes) -> "_Head":
        """The state that a line tells. Raises ValueError for a damaged one."""
        text, given = line[: -_CHECK - 1], line[-_CHECK - 1 :]
        if given != f"{sealed.checksum(text)}\n".encode():
            raise ValueError("its content changed since it was written")
        attempt, end, finished, seal = text.split()
        return _Head(attempt=int(attempt), end=int(end), finished=finished == b"1", seal=seal.decode().replace("-", ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """A journal at one moment, also a damaged one: what can be read of it is no proof of anything."""

    entries: Sequence[Entry]
    """Whatever lines can be read."""
    attempt: int
    """Attempt that began last; 0 where it is not known."""
    ended: bool
    """Whether the last attempt completed."""
    damage: str
    """Damage in words; empty for a sound journal."""
    torn: int
    """Number, from 1, of a line that a kill tore in writing; 0 for none."""

    @property
    def was_finished(self) -> bool:
        """Whether some attempt completed."""
        return self.ended or any(entry.phase == FINISHED for entry in self.entries)


class Journal:
    """Append-only record of what each attempt ran, found cached, or failed at."""

    def __init__(self, root: Path, run: str, *, file: str = "journal.jsonl", shelf: str = RUNS) -> None:
        self.path = root / shelf / run / file
        self._head_path = self.path.with_suffix(".head")
        self._attempt: int | None = None
        self._lock = threading.Lock()

    @property
    def attempt(self) -> int:
        """Number of this start of the run."""
        assert self._attempt is not None, "start_attempt comes first"
        return self._attempt

    def start_attempt(self) -> int:
        """Number this start of the run. Raises DamagedArtifactError for a damaged journal."""
        with self._lock:
            chain, head = self._sound(), self._head()
            self._attempt = max((entry.attempt for entry in _entries(chain.lines)), default=0) + 1
            finished = head.finished if head else False
            head = _Head(attempt=self._attempt, end=chain.end, finished=finished, seal=chain.seals[chain.end])
            # So that gc sees an attempt that has journalled nothing yet. No room for it is no reason to stop here.
            with suppress(OSError):
                self._write_head(head, durably=True)
        return self._attempt

    def is_known(self) -> bool:
        """Whether anything tells of attempts, or that there were none yet."""
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
        """Add one line, durably, to this attempt or an earlier one. Raises StoreError when it cannot be written."""
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
        keep_newest(self.path)

    @contextmanager
    def _appending(self) -> Iterator[tuple[IO[bytes], _Head]]:
        """The file, ready for the next line, and the state before it; one process at a time."""
        with self.path.open("ab") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            head = self._head()
            if head is None or os.fstat(handle.fileno()).st_size != head.end:
                chain = self._sound()
                head = _Head(attempt=self.attempt, end=chain.end, seal=chain.seals[chain.end])
                # What a kill, or a full disk, tore off must not be glued to the next line.
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
        """The state after the last line; None for a journal without one, or with a damaged one."""
        for _ in range(_LOOKS):
            try:
                return _Head.of(self._head_path.read_bytes())
            except FileNotFoundError:
                return None
            except ValueError:
                # Another process may be writing it in this instant.
                time.sleep(_INSTANT)
        return None

    def finish(self) -> None:
        """Mark this attempt complete: it touched every artifact of the run."""
        self.append(phase=FINISHED, iteration=-1, state="done", seconds=0.0)

    def entries(self) -> list[Entry]:
        """All lines in order. Raises DamagedArtifactError for a damaged journal."""
        return _entries(self._sound().lines)

    def look(self) -> Look:
        """The state of the files now."""
        data, head, chain, damage = self._seen()
        entries = _entries(data.split(b"\n"))
        waits = self.path.name.endswith(ASIDE)
        return Look(
            entries=entries,
            attempt=head.attempt if head else 0,
            ended=head.finished if head else bool(entries) and entries[-1].phase == FINISHED,
            damage="a damaged journal, whose run is not repaired yet" if waits else damage,
            torn=chain.torn,
        )

    def set_aside(self) -> Path:
        """Reduce a damaged journal to its sound lines; returns where the damaged one lies until its run is repaired."""
        data, _, chain, _ = self._seen()
        former = self.path.with_suffix(f".{uuid.uuid4().hex[:8]}{ASIDE}")
        if self._head_path.exists():
            durable.write(former.with_suffix(".head"), self._head_path.read_bytes())
        durable.write(former, data)
        if not chain.end:
            # An empty journal would say that there was no attempt yet.
            self.path.unlink(missing_ok=True)
            self._head_path.unlink(missing_ok=True)
            return former
        durable.write(self.path, data[: chain.end])
        attempt = max((entry.attempt for entry in _entries(chain.lines)), default=0)
        self._write_head(_Head(attempt=attempt, end=chain.end, seal=chain.seals[chain.end]), durably=True)
        return former

    def _sound(self) -> sealed.Chain:
        _, _, chain, damage = self._seen()
        if damage:
            hint = "`infuser doctor --repair` makes it anew from what the store holds"
            raise DamagedArtifactError(f"{self.path}: {damage}", hint=hint)
        return chain

    def _seen(self) -> tuple[bytes, _Head | None, sealed.Chain, str]:
        """The file, its head, its lines, and damage in words."""
        # The head first: another process may append meanwhile, and writes the line before the head.
        there, head = self._head_path.exists(), self._head()
        data = self.path.read_bytes() if self.path.exists() else b""
        chain = sealed.chain(data)
        return data, head, chain, _damage(chain, head, there=there)

    def latest(self) -> list[Entry]:
        """The newest entry of each artifact the run consists of. Raises DamagedArtifactError.

        A complete attempt touches everything, so what only older attempts knew (other code, other inputs) is gone.
        """
        return newest_of(self.entries())

    def last_attempt(self) -> list[Entry]:
        """Stages of the newest attempt. Raises DamagedArtifactError."""
        return last_of(self.entries())

    def is_finished(self) -> bool:
        """Whether the newest attempt completed."""
        entries = self.entries()
        return bool(entries) and entries[-1].phase == FINISHED


def newest_of(entries: Iterable[Entry]) -> list[Entry]:
    """The newest entry of each artifact that was not left behind by a complete attempt."""
    known = list(entries)
    complete = max((entry.attempt for entry in known if entry.phase == FINISHED), default=0)
    newest: dict[tuple[str, int, str], Entry] = {}
    for entry in known:
        if entry.attempt >= complete and entry.state in ("ran", "cached"):
            newest[(entry.phase, entry.iteration, entry.key)] = entry
    return list(newest.values())


def last_of(entries: Iterable[Entry]) -> list[Entry]:
    """Stages of the newest attempt."""
    known = list(entries)
    last = max((entry.attempt for entry in known), default=0)
    return [entry for entry in known if entry.attempt == last and entry.phase != FINISHED]


def keep_newest(journal: Path) -> None:
    """Make this journal the newest of its kind: the latest run is the one with the newest, whatever the clock does."""
    newest = 0
    # At every line of every run of a sweep: a glob takes more than twice the time.
    for folder in os.scandir(journal.parent.parent):
        if folder.name != journal.parent.name:
            with suppress(OSError):
                newest = max(newest, os.lstat(f"{folder.path}/{journal.name}").st_mtime_ns)
    if journal.stat().st_mtime_ns <= newest:
        os.utime(journal, ns=(newest + _TICK_NS, newest + _TICK_NS))


def _damage(chain: sealed.Chain, head: _Head | None, *, there: bool) -> str:
    """Contradiction of a journal to itself or its head, in words; empty where it does not."""
    if chain.beyond:
        return f"line {len(chain.lines) + 1} is not as it was written"
    if head is None:
        # Journals of older versions have none.
        return "its head is damaged" if there else "its head is lost" if chain.sealed else ""
    if head.end > chain.end:
        return f"its end is lost, {head.end - chain.end} bytes"
    return "" if chain.seals.get(head.end) == head.seal else "it is not the one that its head tells of"


def _entries(lines: Sequence[bytes]) -> list[Entry]:
    """The lines that can be read."""
    try:
        # All lines as one array: three times faster than one by one.
        whole = [line for line in lines if line]
        found = json.loads(b"[" + b",".join(whole) + b"]")
        if len(found) == len(whole):
            return [_entry(fields) for fields in found]
    except (ValueError, TypeError, AttributeError):
        pass
    read = []
    for line in lines:
        with suppress(ValueError, TypeError, AttributeError):
            read.append(_entry(json.loads(line)))
    return read


def _entry(fields: dict[str, Any]) -> Entry:
    fields.pop("seal", None)
    return Entry(**fields)
