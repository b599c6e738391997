"""Lock and lease of a run: ensure that only one process executes it, and name that process (the holder) to others.

The file `lock` is held through `flock`, which the kernel releases when the holder ends. `lease.json` describes the
holder, which touches the file every few seconds. A run is free if its lock is free and it has no lease, or one from
this boot of this machine. A lease from another machine is valid until it has not been touched for `STALE` seconds by
the clock of the shared file system; if its time is in the future, it is watched for new touches instead. A holder that
dies leaves its lease, which tells what stage it was executing.
"""

import fcntl
import json
import os
import platform
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import IO, Any

from infuser_core.errors import BusyRunError
from infuser_core.system.child import count_memory_kills
from infuser_core.system.durable import write_errors

FILE = "lease.json"
BEAT = 10.0
"""Seconds between two touches of a lease."""
STALE = 60.0
"""Seconds without a touch after which a holder on another machine counts as dead."""
AND = "; "
"""Separator of stages that run at the same time, in `Lease.doing`."""
_LOCK_SECONDS = 0.5
_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """Content of `lease.json`: the process that executes a run, and its current stages."""

    pid: int
    """Process id on its machine."""
    boot: str
    """Boot id of the machine's kernel."""
    host: str
    """Name of the machine, only for display."""
    since: str
    """Local time at which the process took the run."""
    token: str
    """Random identifier, unique to the lease."""
    killed_for_memory: int
    """Number of processes of its control group that had been killed for lack of memory when the run was taken."""
    control_groups: str = ""
    """Control groups of the process; empty if unknown."""
    doing: str = ""
    """Stages that are running; empty between stages."""
    doing_since: float = 0.0
    """Time at which `doing` last changed, seconds since the epoch, only for display."""

    @property
    def holder(self) -> str:
        """Human-readable description of the process."""
        return f"process {self.pid} on {self.host}, since {self.since}"


class Hold:
    """This process's lease of a run that it executes. A thread touches the lease file until `give_back`."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._doing: list[str] = []
        self._mine = Lease(
            pid=os.getpid(),
            boot=_boot_id(),
            host=platform.node(),
            since=time.strftime("%Y-%m-%d %H:%M:%S"),
            token=uuid.uuid4().hex,
            killed_for_memory=count_memory_kills() or 0,
            control_groups=_control_groups(),
        )
        self.dead_lease: Lease | None = _take(self._path, self._mine)
        """Lease of the previous holder if it died without giving the run back; otherwise None."""
        threading.Thread(target=self._touch_regularly, name="lease", daemon=True).start()

    def begin_stage(self, doing: str) -> None:
        """Record in the lease that a stage begins."""
        with self._lock:
            self._record_doing([*self._doing, doing])

    def end_stage(self, doing: str) -> None:
        """Record in the lease that a stage ended. Ignores write errors, which would hide an error of the stage."""
        with self._lock, suppress(OSError):
            self._record_doing([each for each in self._doing if each != doing])

    def _record_doing(self, doing: list[str]) -> None:
        self._doing = doing
        self._mine = replace(self._mine, doing=AND.join(doing), doing_since=time.time())
        if self._is_ours():
            _draft(self._path, self._mine).replace(self._path)

    def check(self) -> None:
        """Raise BusyRunError if another machine took over the run, because the lease was not touched for too long."""
        with self._lock:
            if not self._is_ours():
                other = _read(self._path)
                raise BusyRunError(
                    f"the run was taken over by {other.holder if other else 'another process'}",
                    hint="this process was silent for too long; what it committed is kept, and the other continues",
                )

    def give_back(self) -> None:
        """Stop touching the lease and delete it."""
        self._is_over.set()
        with self._lock, suppress(OSError):
            if self._is_ours():
                self._path.unlink()

    def _is_ours(self) -> bool:
        lease = _read(self._path)
        return lease is not None and lease.token == self._mine.token

    def _touch_regularly(self) -> None:
        while not self._is_over.wait(BEAT):
            with self._lock, suppress(OSError):
                if not self._is_over.is_set() and self._is_ours():
                    os.utime(self._path)


@contextmanager
def hold(folder: Path, name: str) -> Iterator[Hold]:
    """Take the lock and the lease of the run in this folder while the block executes.

    Raises BusyRunError, which names the holder, if another living process executes the run.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("a+") as handle:
        if not try_lock(handle) or find_holder_elsewhere(folder) is not None:
            raise busy_error(folder, name)
        with write_errors(folder, hint="free some space, or set INFUSER_STORE to a folder you may write"):
            own = Hold(folder)
        try:
            yield own
        finally:
            own.give_back()


def is_held(folder: Path) -> bool:
    """Whether a living process executes the run in this folder."""
    path = folder / "lock"
    if not path.exists():
        return False
    with path.open("r") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return find_holder_elsewhere(folder) is not None


def current_stages(folder: Path) -> str:
    """Stages that the holder of the run in this folder is executing; empty between stages and without a holder."""
    lease = _read(folder / FILE)
    return lease.doing if lease else ""


def find_holder_elsewhere(folder: Path, *, patience: float = STALE) -> Lease | None:
    """The lease of a living holder on another machine, whose lock may be invisible here; None if there is none.

    A lease with a time in the future, because a clock was set back, is watched for `patience` seconds.
    """
    lease = _read(folder / FILE)
    if lease is None or lease.boot == _boot_id():
        return None
    silence = _silence(folder)
    is_alive = _is_touched_within(folder / FILE, patience) if silence < 0 else silence < STALE
    return lease if is_alive else None


def _is_touched_within(path: Path, patience: float) -> bool:
    """Whether the lease is touched during the next `patience` seconds; if not, its time is set back so it is stale."""
    with suppress(OSError):
        before = path.stat().st_mtime_ns
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
            if path.stat().st_mtime_ns != before:
                return True
        os.utime(path, (0, 0))
    return False


def find_dead_holder(folder: Path) -> Lease | None:
    """The lease of a holder that died without releasing the run in this folder; None if there is none."""
    return None if is_held(folder) else _read(folder / FILE)


def describe_death(lease: Lease, name: str) -> str:
    """Message about a dead holder: the process, how it died, and in which stage."""
    is_here = lease.boot == _boot_id()
    how = "was killed (signal 9)" if is_here else "fell silent with its machine"
    where = f" during {lease.doing.replace(AND, ' and ')}" if lease.doing else ""
    # The count of another control group says nothing about this process.
    has_same_count = is_here and lease.control_groups == _control_groups()
    is_suspected = has_same_count and (count_memory_kills() or 0) > lease.killed_for_memory
    guess = "; possibly out of memory" if is_suspected else ""
    return f"run {name}: {lease.holder}, {how}{where}{guess}; continuing from its last completed stage"


def busy_error(folder: Path, name: str) -> BusyRunError:
    """Create the error for a run that another living process executes; its message names the holder."""
    lease = _read(folder / FILE)
    holder = lease.holder if lease else "another process, which is just starting"
    hint = "wait for it with --wait, or stop that process"
    if lease and lease.boot != _boot_id():
        hint = f"wait for it with --wait; {STALE:.0f} s after its last sign of life it counts as dead"
    return BusyRunError(f"run {name} is being executed by {holder}", hint=hint)


def try_lock(handle: IO[Any]) -> bool:
    """Try for half a second to take the exclusive lock; returns whether that succeeded.

    Retries because processes that check the lock hold a shared lock for an instant.
    """
    deadline = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.02)
        else:
            return True


def _take(path: Path, mine: Lease) -> Lease | None:
    """Write our lease in place of a dead holder's; returns the dead lease, or None if there was none.

    The file is created as a hard link, so that only one of two machines succeeds. The other one gets BusyRunError.
    """
    dead = _read(path)
    if path.exists():
        aside = path.with_suffix(f".{mine.token}.dead")
        with suppress(FileNotFoundError):
            path.rename(aside)
        moved_lease = _read(aside)
        aside.unlink(missing_ok=True)
        if moved_lease is not None and (dead is None or moved_lease.token != dead.token):
            _place(path, moved_lease)
            raise busy_error(path.parent, path.parent.name)
    if not _place(path, mine):
        raise busy_error(path.parent, path.parent.name)
    for pattern in ("lease.*.tmp", "lease.*.dead"):
        # Left by a process that was killed between writing and linking, or by a competitor that has just lost.
        for draft in path.parent.glob(pattern):
            draft.unlink(missing_ok=True)
    return dead


def _place(path: Path, lease: Lease) -> bool:
    draft = _draft(path, lease)
    try:
        os.link(draft, path)
    except (FileExistsError, FileNotFoundError):  # Another process won, and may have deleted our draft.
        return False
    except OSError:  # The file system has no hard links: rely on the lock alone.
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    return True


def _draft(path: Path, lease: Lease) -> Path:
    draft = path.with_suffix(f".{lease.token}.tmp")
    draft.write_text(json.dumps(asdict(lease), sort_keys=True) + "\n")
    return draft


def _read(path: Path) -> Lease | None:
    try:
        facts = json.loads(path.read_text())
        return Lease(**{each.name: facts[each.name] for each in fields(Lease) if each.name in facts})
    except (OSError, ValueError, TypeError):
        return None


def _silence(folder: Path) -> float:
    """Seconds since the lease was touched, by the file system's clock; negative if the clock was set back since."""
    probe = folder / f".now.{uuid.uuid4().hex}"
    try:
        touched = (folder / FILE).stat().st_mtime
        probe.touch()
        now = probe.stat().st_mtime
    except FileNotFoundError:
        return STALE
    except OSError:  # The folder is read-only: use this machine's clock.
        now = time.time()
    finally:
        with suppress(OSError):
            probe.unlink(missing_ok=True)
    return now - touched


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:  # Not Linux: use the machine's name instead.
        return platform.node()


def _control_groups() -> str:
    try:
        return Path("/proc/self/cgroup").read_text()
    except OSError:  # Not Linux.
        return ""
