"""The lock and the lease of a run: one process executes it, and others can see which.

`lock` is held through `flock`: it ends with its holder, however that ends. `lease.json` names the holder and is touched
every few seconds. The rule for a run whose lock is free: no lease, or one from this boot of this machine, means that
nobody is at work. A lease from elsewhere counts until it has not been touched for `STALE` seconds, by the clock of the
file system that both machines share; a touch in the future says nothing, and the lease is watched instead. A dead
holder's lease stays behind, and says what it was doing.
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
from infuser_core.system.durable import write_errors

FILE = "lease.json"
BEAT = 10.0
"""Seconds between two touches of a lease."""
STALE = 60.0
"""Seconds without a touch after which a holder on another machine counts as dead."""
AND = "; "
"""Between two stages that are at work beside each other."""
_ASKING = 0.5
_WATCHING = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A process that executes a run."""

    pid: int
    """Process id on its machine."""
    boot: str
    """Boot id of the machine's kernel."""
    host: str
    """Name of the machine, for people."""
    since: str
    """Local time when the run was taken."""
    token: str
    """Random; no two leases share it."""
    killed_for_memory: int
    """Processes that the kernel of this boot had ended for want of memory by then."""
    doing: str = ""
    """Stages at work; empty between stages."""
    doing_since: float = 0.0
    """When the last change of that was, seconds since the epoch, for people."""

    @property
    def holder(self) -> str:
        """The process in words."""
        return f"process {self.pid} on {self.host}, since {self.since}"


class Hold:
    """A held lock: the run is this process's own as long as this object lives."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._doing: list[str] = []
        self._mine = Lease(
            pid=os.getpid(),
            boot=_boot_id(),
            host=platform.node(),
            since=time.strftime("%Y-%m-%d %H:%M:%S"),
            token=uuid.uuid4().hex,
            killed_for_memory=_killed_for_memory(),
        )
        self.left: Lease | None = _take(self._path, self._mine)
        """Lease of a holder that died without giving the run back."""
        self._beats = threading.Thread(target=self._beat, name="lease", daemon=True)
        self._beats.start()

    def note(self, doing: str) -> None:
        """A stage begins: said for whoever finds the lease of a dead process."""
        with self._lock:
            self._note([*self._doing, doing])

    def note_end(self, doing: str) -> None:
        """A stage is over. Where that cannot be written, what ended it matters more."""
        with self._lock, suppress(OSError):
            self._note([each for each in self._doing if each != doing])

    def _note(self, doing: list[str]) -> None:
        self._doing = doing
        self._mine = replace(self._mine, doing=AND.join(doing), doing_since=time.time())
        if self._is_ours():
            _draft(self._path, self._mine).replace(self._path)

    def check(self) -> None:
        """Raises BusyRunError when another machine took the run, because this process did not stir for long."""
        with self._lock:
            if not self._is_ours():
                other = _read(self._path)
                raise BusyRunError(
                    f"the run was taken over by {other.holder if other else 'another process'}",
                    hint="this process was silent for too long; what it committed is kept, and the other goes on",
                )

    def give_back(self) -> None:
        """The run is free again."""
        self._ended.set()
        with self._lock, suppress(OSError):
            if self._is_ours():
                self._path.unlink()

    def _is_ours(self) -> bool:
        found = _read(self._path)
        return found is not None and found.token == self._mine.token

    def _beat(self) -> None:
        while not self._ended.wait(BEAT):
            with self._lock, suppress(OSError):
                if not self._ended.is_set() and self._is_ours():
                    os.utime(self._path)


@contextmanager
def hold(folder: Path, name: str) -> Iterator[Hold]:
    """Own the run in this folder. Raises BusyRunError with the holder when another process lives."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("a+") as handle:
        if not locked(handle) or holder_elsewhere(folder) is not None:
            raise busy(folder, name)
        with write_errors(folder, hint="free some space, or set INFUSER_STORE to a folder you may write"):
            held = Hold(folder)
        try:
            yield held
        finally:
            held.give_back()


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
    return holder_elsewhere(folder) is not None


def holder_elsewhere(folder: Path, *, patience: float = STALE) -> Lease | None:
    """The lease of a living holder on another machine, whose lock this kernel may not see.

    A lease from the future, left before a clock was put back, is watched for `patience` seconds.
    """
    found = _read(folder / FILE)
    if found is None or found.boot == _boot_id():
        return None
    silence = _silence(folder)
    return found if (_stirs(folder / FILE, patience) if silence < 0 else silence < STALE) else None


def _stirs(path: Path, patience: float) -> bool:
    """Whether somebody touches the lease within this time. One that nobody touches is dated back: watched once."""
    with suppress(OSError):
        before = path.stat().st_mtime_ns
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            time.sleep(_WATCHING)
            if path.stat().st_mtime_ns != before:
                return True
        os.utime(path, (0, 0))
    return False


def dead_holder(folder: Path) -> Lease | None:
    """The lease of a holder that died without giving the run in this folder back; None where nobody did."""
    return None if is_held(folder) else _read(folder / FILE)


def describe_left(left: Lease, name: str) -> str:
    """Facts of a holder's death."""
    how = "was killed"
    if left.boot != _boot_id():
        how = "fell silent with its machine"
    elif _killed_for_memory() > left.killed_for_memory:
        how = "was killed, probably for want of memory: the kernel ended a process for that meanwhile"
    where = f" in {left.doing}" if left.doing else ""
    return f"run {name}: {left.holder}, {how}{where}; going on from its last completed stage"


def busy(folder: Path, name: str) -> BusyRunError:
    """The refusal of a run that somebody executes, with the holder."""
    found = _read(folder / FILE)
    holder = found.holder if found else "another process, which is just starting"
    hint = "wait for it with --wait, or stop that process"
    if found and found.boot != _boot_id():
        hint = f"wait for it with --wait; {STALE:.0f} s after its last sign of life it counts as dead"
    return BusyRunError(f"run {name} is being executed by {holder}", hint=hint)


def locked(handle: IO[Any]) -> bool:
    """Take the kernel's lock. Whoever merely asks holds a shared one for an instant, so one refusal is no answer."""
    deadline = time.monotonic() + _ASKING
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
    """Put our lease in place and return the dead one that lay there. A link exists once: of two machines one wins."""
    dead = _read(path)
    if path.exists():
        aside = path.with_suffix(f".{mine.token}.dead")
        with suppress(FileNotFoundError):
            path.rename(aside)
        taken = _read(aside)
        aside.unlink(missing_ok=True)
        if taken is not None and (dead is None or taken.token != dead.token):
            _place(path, taken)
            raise busy(path.parent, path.parent.name)
    if not _place(path, mine):
        raise busy(path.parent, path.parent.name)
    for pattern in ("lease.*.tmp", "lease.*.dead"):
        # Left by a process that was killed between writing and renaming, or of a rival that has just lost.
        for draft in path.parent.glob(pattern):
            draft.unlink(missing_ok=True)
    return dead


def _place(path: Path, lease: Lease) -> bool:
    draft = _draft(path, lease)
    try:
        os.link(draft, path)
    except (FileExistsError, FileNotFoundError):  # the winner has also taken our draft away
        return False
    except OSError:  # a file system without links: the lock alone must do
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
        told = json.loads(path.read_text())
        return Lease(**{each.name: told[each.name] for each in fields(Lease) if each.name in told})
    except (OSError, ValueError, TypeError):
        return None


def _silence(folder: Path) -> float:
    """Seconds since the lease was touched; below 0 where the clock was put back since."""
    probe = folder / f".now.{uuid.uuid4().hex}"
    try:
        touched = (folder / FILE).stat().st_mtime
        probe.touch()
        now = probe.stat().st_mtime
    except FileNotFoundError:
        return STALE
    except OSError:  # a folder that is only read: this machine's clock must do
        now = time.time()
    finally:
        with suppress(OSError):
            probe.unlink(missing_ok=True)
    return now - touched


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:  # not Linux: one boot per machine name
        return platform.node()


def _killed_for_memory() -> int:
    try:
        lines = Path("/proc/vmstat").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
