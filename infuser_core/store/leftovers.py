"""Leftovers of killed processes in a store: owner, size, and whether somebody still needs them.

A workspace in `.staging` belongs to a key. Whoever works on a key holds its lock, which ends with the process.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from infuser_core.store import lease, runs
from infuser_core.store.recipe import MANIFEST
from infuser_core.store.store import Store

TRASH = ".trash"
DAMAGED = "damaged"
_DRAFTS = ("*.tmp", ".now.*", "lease.*.dead")
_UNKNOWN = "an unknown process"
_FRESH = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """A file or folder that no artifact consists of."""

    kind: str
    """staging, pieces, draft, damaged or trash."""
    path: Path
    """Where it lies."""
    owner: str
    """Process that left it, in words."""
    needed: str = ""
    """Why it must stay; empty where it may go."""

    @property
    def bytes(self) -> int:
        """Size of all its files."""
        return size_of(self.path)


def leftovers(root: Path, *, held: frozenset[str] = frozenset()) -> list[Leftover]:
    """Everything left over. `held`: keys that runs hold, whose damaged remains are kept until they are repaired."""
    found = [*_staging(root), *_pieces(root), *_drafts(root), *_damaged(root, held)]
    found += [Leftover(kind="trash", path=path, owner="an interrupted gc") for path in (root / TRASH).glob("*")]
    return sorted(found, key=lambda left: (left.kind, left.path))


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files below a folder; none for what its owner takes away meanwhile."""
    alone = path.is_file() or path.is_symlink()
    files = [path] if alone else [Path(folder) / name for folder, _, names in os.walk(path) for name in names]
    total = 0
    for file in files:
        with suppress(FileNotFoundError):
            total += file.lstat().st_size
    return total


def _staging(root: Path) -> Iterator[Leftover]:
    elsewhere = _live_elsewhere(root)
    for path in (root / ".staging").glob("*"):
        worker, at_work = _worker_on(root, path.name.partition(".")[0])
        yield Leftover(kind="staging", path=path, owner=worker, needed=at_work or elsewhere)


def _pieces(root: Path) -> Iterator[Leftover]:
    for path in (root / ".partial").glob("*"):
        worker, at_work = _worker_on(root, path.name)
        unfinished = "" if _committed(root, path.name) else "finished pieces of a stage that is not complete"
        yield Leftover(kind="pieces", path=path, owner=worker, needed=at_work or unfinished)


def _drafts(root: Path) -> Iterator[Leftover]:
    """Temporary files beside what they were to replace, in runs that nobody executes, and in artifacts."""
    for folder in runs.runs_folder(root).glob("*"):
        if folder.is_dir() and not runs.is_held(root, folder.name):
            for path in [path for pattern in _DRAFTS for path in folder.glob(pattern)]:
                yield Leftover(kind="draft", path=path, owner=f"run {folder.name}")
    for path in (root / "artifacts").glob("*/*/.*.tmp"):
        yield Leftover(kind="draft", path=path, owner=path.parent.name)
    for path in [*root.glob(".writable.*"), *filter(_is_left, root.glob(".*.tmp"))]:
        yield Leftover(kind="draft", path=path, owner="a start")


def _is_left(draft: Path) -> bool:
    """Whether it is older than any reader needs to replace its record of what it has verified."""
    with suppress(FileNotFoundError):
        return time.time() - draft.stat().st_mtime > _FRESH
    return False


def _damaged(root: Path, held: frozenset[str]) -> Iterator[Leftover]:
    for path in (root / DAMAGED).glob("*"):
        key = path.name.rpartition(".")[0]
        waits = key in held and not _committed(root, key)
        needed = "its artifact is not computed again yet" if waits else ""
        yield Leftover(kind="damaged", path=path, owner=key, needed=needed)


def _committed(root: Path, key: str) -> bool:
    return (Store(root).folder(key.rpartition("-")[0], key) / MANIFEST).is_file()


def _worker_on(root: Path, key: str) -> tuple[str, str]:
    """The process that last took a key's lock, and where it still has it, that it is at work; both in words."""
    path = root / "locks" / key
    if not path.is_file():
        return _UNKNOWN, ""
    with path.open("r") as handle:
        name = handle.read().strip() or _UNKNOWN
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return name, f"{name} works on it"
        return name, ""


def _live_elsewhere(root: Path) -> str:
    """Another machine's locks may be invisible here; while one of its processes lives, its workspaces stay."""
    for folder in runs.runs_folder(root).glob("*"):
        found = lease.holder_elsewhere(folder)
        if found is not None:
            return f"{found.holder} may work on it"
    return ""
