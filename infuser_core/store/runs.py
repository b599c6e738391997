"""Records of runs: resolved configuration, journal of stages, and a lock that dies with its holder.

Layout: `runs/<name>/{run.json, journal.jsonl, lock, lease.json, report/}`.
"""

import fcntl
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from infuser_core import durable
from infuser_core.errors import BusyRunError, ConfigError, StoreError, UsageError
from infuser_core.store import lease

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
RUNS = "runs"
"""Folder of the store with the records of runs."""
EVALUATIONS = "evaluations"
"""Folder of the store with the records of evaluations of any model."""
FINISHED = "run"
"""Pseudo-stage that ends a complete attempt."""
_TICK_NS = 1000
_SWEEP = Path("locks") / "gc"
_LOOK_AGAIN = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One stage of one attempt."""

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


def runs_folder(root: Path) -> Path:
    """Where the records of runs lie."""
    return root / RUNS


def list_runs(root: Path) -> list[str]:
    """Names of all runs, the latest started last."""
    found = [path.parent for path in runs_folder(root).glob("*/run.json")]
    return [path.name for path in sorted(found, key=lambda path: (_started(path), path.name))]


def _started(folder: Path) -> float:
    journal = folder / "journal.jsonl"
    return (journal if journal.exists() else folder / "run.json").stat().st_mtime


def mark_latest(root: Path, name: str) -> None:
    """Make the run the one that commands mean when none is named."""
    journal = runs_folder(root) / name / "journal.jsonl"
    journal.touch()
    _keep_newest(journal)


def _keep_newest(journal: Path) -> None:
    """The latest run is the one with the newest journal, also when the clock was put back meanwhile."""
    others = (path for path in journal.parent.parent.glob(f"*/{journal.name}") if path != journal)
    newest = max((path.stat().st_mtime_ns for path in others), default=0)
    if journal.stat().st_mtime_ns <= newest:
        os.utime(journal, ns=(newest + _TICK_NS, newest + _TICK_NS))


def find_run(root: Path, name: str | None) -> str:
    """The named run, or the latest. Raises UsageError when there is none."""
    known = list_runs(root)
    if name is None and known:
        return known[-1]
    if name in known:
        return str(name)
    wanted = f"no run named {name}" if name else "no runs yet"
    hint = f"known runs: {', '.join(known)}" if known else "start one with `infuser run configs/nano.yaml`"
    raise UsageError(f"{wanted} in {root}", hint=hint)


def create_run(
    root: Path, name: str, config: dict[str, Any], *, complete: Callable[[dict[str, Any]], dict[str, Any]] = dict
) -> None:
    """Record the resolved configuration; the same name with another configuration is refused.

    `complete` fills in what a record of an older version does not know: its keys' defaults.
    """
    check_name(name)
    path = runs_folder(root) / name / "run.json"
    if path.is_file():
        known = complete(read_config(root, name))
        changed = [f"{key} is {old!r}, asked {new!r}" for key, old, new in differing(known, config)]
        if changed:
            raise ConfigError(
                f"run {name} exists with other settings: {'; '.join(changed[:3])}",
                hint="choose another --name, or `infuser resume` to go on with the recorded settings",
            )
        return
    record = {"name": name, "config": config, "created": time.strftime("%Y-%m-%dT%H:%M:%S%z")}
    durable.write_json(path, record)


def write_record(root: Path, name: str, file: str, value: Any) -> None:
    """Replace a JSON file of the run's record in one atomic step. Raises StoreError when it cannot be written."""
    path = runs_folder(root) / name / file
    with durable.write_errors(path, hint="free some space, or set INFUSER_STORE to a folder you may write"):
        durable.write_json(path, value)


def check_name(name: str) -> None:
    """Raises UsageError for what cannot name a run."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"--name {name}: not a name for a run", hint="letters, digits, '.', '_' and '-'")


def read_config(root: Path, name: str) -> dict[str, Any]:
    """The resolved configuration that the run was created with."""
    path = runs_folder(root) / name / "run.json"
    try:
        return json.loads(path.read_text())["config"]
    except (json.JSONDecodeError, KeyError) as error:
        hint = "start it again with its configuration files and --name: what the store has is not computed again"
        raise StoreError(f"the record {path} is damaged: {error}", hint=hint) from error


def differing(old: Any, new: Any, where: str = "") -> list[tuple[str, Any, Any]]:
    """Leaves of two nested settings that differ: dotted name and both values, None for one that is not there."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        keys = sorted({*old, *new})
        return [leaf for key in keys for leaf in differing(old.get(key), new.get(key), f"{where}.{key}".lstrip("."))]
    return [] if old == new else [(where, old, new)]


class Journal:
    """Append-only record of what each attempt ran, found cached, or failed at."""

    def __init__(self, root: Path, run: str, *, file: str = "journal.jsonl", shelf: str = RUNS) -> None:
        self.path = root / shelf / run / file
        self._attempt: int | None = None
        self._torn = False

    @property
    def attempt(self) -> int:
        """Number of this start of the run."""
        assert self._attempt is not None, "start_attempt comes first"
        return self._attempt

    def start_attempt(self) -> int:
        """Number this start of the run."""
        self._attempt = max((entry.attempt for entry in self.entries()), default=0) + 1
        if self.path.exists() and not self.path.read_bytes().endswith(b"\n"):
            # A kill may have torn the last line; the next one must not be glued to it.
            with self.path.open("ab") as handle:
                handle.write(b"\n")
        # So that gc sees an attempt that has not journalled anything yet. No room for it is no reason to stop here.
        with suppress(OSError):
            self._started.write_text(f"{self._attempt}\n")
        return self._attempt

    @property
    def _started(self) -> Path:
        return self.path.with_suffix(".attempt")

    def newest_attempt(self) -> list[Entry]:
        """Stages of the attempt that began last; empty where it has ended none yet."""
        text = self._started.read_text() if self._started.exists() else ""
        number = int(text) if text.strip().isdigit() else 0
        return [entry for entry in self.last_attempt() if entry.attempt >= number]

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
        """Add one line, to this attempt or an earlier one. One write per line, so a kill tears at most the last.

        Raises StoreError when it cannot be written.
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
        )
        line = json.dumps(asdict(entry)).encode() + b"\n"
        try:
            with self.path.open("ab") as handle:
                # What a full disk tore must not be glued to this line.
                handle.write(b"\n" + line if self._torn else line)
        except OSError as error:
            self._torn = True
            hint = "free some space, then `infuser resume`: what is committed is kept"
            raise StoreError(f"cannot write {self.path}: {error.strerror or error}", hint=hint) from error
        self._torn = False
        _keep_newest(self.path)

    def finish(self) -> None:
        """Mark this attempt complete: it touched every artifact of the run."""
        self.append(phase=FINISHED, iteration=-1, state="done", seconds=0.0)

    def entries(self) -> list[Entry]:
        """All lines in order; a torn last line is passed over."""
        if not self.path.exists():
            return []
        lines = [line for line in self.path.read_bytes().split(b"\n") if line]
        try:
            # All lines as one array: three times faster than one by one.
            found = json.loads(b"[" + b",".join(lines) + b"]")
            if len(found) == len(lines):
                return [Entry(**fields) for fields in found]
        except (ValueError, TypeError):
            pass
        return [entry for entry in map(_entry, lines) if entry is not None]

    def torn(self) -> list[int]:
        """Numbers, from 1, of the lines that cannot be read."""
        lines = self.path.read_bytes().split(b"\n") if self.path.exists() else []
        return [number for number, line in enumerate(lines, 1) if line.strip() and _entry(line) is None]

    def latest(self) -> list[Entry]:
        """The newest entry of each artifact the run consists of.

        A complete attempt touches everything, so what only older attempts knew (other code, other inputs) is gone.
        """
        entries = self.entries()
        complete = max((entry.attempt for entry in entries if entry.phase == FINISHED), default=0)
        newest: dict[tuple[str, int, str], Entry] = {}
        for entry in entries:
            if entry.attempt >= complete and entry.state in ("ran", "cached"):
                newest[(entry.phase, entry.iteration, entry.key)] = entry
        return list(newest.values())

    def last_attempt(self) -> list[Entry]:
        """Stages of the newest attempt."""
        entries = self.entries()
        last = max((entry.attempt for entry in entries), default=0)
        return [entry for entry in entries if entry.attempt == last and entry.phase != FINISHED]

    def was_finished(self) -> bool:
        """Whether some attempt completed: `latest` then names everything the run consists of."""
        return any(entry.phase == FINISHED for entry in self.entries())

    def is_finished(self) -> bool:
        """Whether the newest attempt completed."""
        entries = self.entries()
        return bool(entries) and entries[-1].phase == FINISHED


def _entry(line: bytes) -> Entry | None:
    """One line of a journal, or None for a torn or garbled one: no beginning of a JSON object is JSON itself."""
    try:
        return Entry(**json.loads(line))
    except (ValueError, TypeError):
        return None


@contextmanager
def holding(root: Path, name: str, *, shelf: str = RUNS) -> Iterator[lease.Hold]:
    """Own the run, or the evaluation, while it executes; it ends with the process, however that ends.

    Raises BusyRunError with the holder's process when another one lives. Waits while gc removes what nobody holds.
    """
    with lease.hold(root / shelf / name, name) as held:
        _wait_for_sweep(root)
        yield held


@contextmanager
def sweeping(root: Path) -> Iterator[None]:
    """While this lasts no run begins: it would reuse what is being removed. Raises BusyRunError when another one lives.

    Who began before holds its run's lock, and so is seen.
    """
    path = root / _SWEEP
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = path.open("a+")
    except OSError as error:
        hint = "set INFUSER_STORE to a folder you may write"
        raise StoreError(f"cannot write {path}: {error.strerror or error}", hint=hint) from error
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            said = f"another process removes files in {root}"
            raise BusyRunError(said, hint="wait for its end") from error
        yield


def _wait_for_sweep(root: Path) -> None:
    path = root / _SWEEP
    if path.exists():
        with path.open("r") as handle:
            fcntl.flock(handle, fcntl.LOCK_SH)


def is_held(root: Path, name: str) -> bool:
    """Whether a living process executes the run."""
    return lease.is_held(runs_folder(root) / name)


def refuse_held(root: Path, name: str) -> None:
    """Raises BusyRunError with the holder when a living process executes the run."""
    lease.refuse_held(runs_folder(root) / name, name)


def wait_until_free(root: Path, name: str) -> None:
    """Return when nobody executes the run, a dead holder on another machine included."""
    while is_held(root, name):
        time.sleep(_LOOK_AGAIN)
