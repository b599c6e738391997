"""What the fault tests share: a store that is finished up to a stage, and ways to harm a process or a disk."""

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from launcher import Finished, Launcher, SmallRun, Started, copy_store

from infuser_core.store.journal import Journal
from infuser_core.store.recipe import MANIFEST


def store_without(small_run: SmallRun, target: Path, *phases: str) -> Path:
    """The finished run's artifacts but those of some phases, and no record of the run: it is started, not resumed."""
    return copy_store(small_run.root, target, without=phases)


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The run, started to its end."""

    ended: Finished
    """How it ended."""

    def fails_with(self, code: int) -> list[str]:
        """Message and hint of a run that failed with this exit code."""
        assert self.ended.code == code, self.ended
        return self.ended.err.splitlines()


@dataclass(slots=True, kw_only=True)
class Faults:
    """The small run again, in a store of its own that lacks some of its artifacts, to be disturbed."""

    launch: Launcher
    """Starts the commands."""
    run: SmallRun
    """The undisturbed run."""
    store: Path
    """The store."""

    def without(self, *phases: str) -> Path:
        """Fill the store with all artifacts but those of some phases."""
        return store_without(self.run, self.store, *phases)

    @property
    def journal(self) -> Journal:
        """The run's journal."""
        return Journal(self.store, self.run.name)

    def begin(self, **environment: str) -> Started:
        """Start the run."""
        return self.launch.start(*self.run.arguments, store=self.store, **environment)

    def start(self, **environment: str) -> Start:
        """Start the run and wait for its end."""
        return Start(ended=self.begin(**environment).wait())

    def resumes(self) -> Finished:
        """Resume it to its end, and compare."""
        resumed = self.launch("resume", store=self.store)
        assert resumed.code == 0, resumed.err
        self.has_the_same_bits()
        return resumed

    def has_the_same_bits(self) -> None:
        """Compare with the undisturbed run."""
        ours, whole = (
            self.launch("status", "--digest", self.run.name, store=root) for root in (self.store, self.run.root)
        )
        assert whole.code == 0 and ours.out == whole.out


def eventually(condition: Callable[[], object], what: str, seconds: float = 120.0, every: float = 0.02) -> None:
    """Wait for it."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(every)


def is_stopped(pid: int) -> bool:
    """Whether a process is stopped by a signal."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except OSError:
        return False


def own_copy(folder: Path, name: str) -> Path:
    """A file of an artifact that may be harmed: stores in tests share their files by hard links."""
    path = folder / name
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content)
    return path


def artifact(store: Path, phase: str) -> Path:
    """The first artifact of a phase."""
    return sorted(path.parent for path in (store / "artifacts" / phase).glob(f"*/{MANIFEST}"))[0]


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """A file system of its own in memory. Skips where it may not be mounted."""
    folder.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], capture_output=True)
    if done.returncode:
        pytest.skip("mounting needs root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def remount(folder: Path, options: str) -> None:
    """Change a mounted file system."""
    subprocess.run(["mount", "-o", f"remount,{options}", folder], check=True)


def used(folder: Path) -> int:
    """Bytes in use on the file system."""
    found = os.statvfs(folder)
    return (found.f_blocks - found.f_bfree) * found.f_frsize
