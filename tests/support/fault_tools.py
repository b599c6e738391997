"""What the fault tests share: a store that is finished up to a stage, and ways to harm a process or a disk."""

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from launcher import SmallRun, copy_store

from infuser_core.store.store import MANIFEST

EVALUATION = ("respond", "validate", "select", "leakage", "evaluate")


def store_without(small_run: SmallRun, target: Path, *phases: str) -> Path:
    """The finished run's artifacts but those of some phases, and no record of the run: it is started, not resumed."""
    return copy_store(small_run.root, target, without=phases)


def eventually(condition: Callable[[], object], what: str, seconds: float = 120.0) -> None:
    """Wait for it."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.02)


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
