"""Leftovers of killed processes in a store: owner, size, and whether somebody still needs them.

A workspace in `.staging` belongs to a key. Whoever works on a key holds its lock, which ends with the process.
"""

import fcntl
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from infuser_core.store import lease, runs
from infuser_core.store.store import MANIFEST, Store

TRASH = ".trash"
DAMAGED = "damaged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """A file or folder that no artifact consists of."""

    kind: str
    """staging, pieces, draft, damaged or trash."""
    path: Path
    """Where it lies."""
    bytes: int
    """Size of all its files."""
    owner: str
    """Who left it, in words."""
    needed: str
    """Why it must stay; empty where it may go."""


def leftovers(root: Path, *, held: frozenset[str] = frozenset()) -> list[Leftover]:
    """Everything left over. `held`: keys that runs hold, whose damaged remains are kept until they are repaired."""
    found = [*_staging(root), *_pieces(root), *_drafts(root), *_damaged(root, held), *_trash(root)]
    return sorted(found, key=lambda left: (left.kind, left.path))


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files below a folder."""
    if path.is_file() or path.is_symlink():
        return path.lstat().st_size
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                total += (Path(folder) / name).lstat().st_size
            except FileNotFoundError:  # its owner is at work
                continue
    return total


def _staging(root: Path) -> Iterator[Leftover]:
    elsewhere = _live_elsewhere(root)
    for path in (root / ".staging").glob("*"):
        key = path.name.partition(".")[0]
        worker = _worker_on(root, key)
        needed = f"{worker.name} works on it" if worker.at_work else elsewhere
        yield Leftover(kind="staging", path=path, bytes=size_of(path), owner=worker.name, needed=needed)


def _pieces(root: Path) -> Iterator[Leftover]:
    for path in (root / ".partial").glob("*"):
        worker = _worker_on(root, path.name)
        needed = "" if _committed(root, path.name) else "finished pieces of a stage that is not complete"
        needed = f"{worker.name} works on it" if worker.at_work else needed
        yield Leftover(kind="pieces", path=path, bytes=size_of(path), owner=worker.name, needed=needed)


def _drafts(root: Path) -> Iterator[Leftover]:
    """Temporary files beside what they were to replace, in runs that nobody executes, and in artifacts."""
    for folder in runs.runs_folder(root).glob("*"):
        if folder.is_dir() and not runs.is_held(root, folder.name):
            for pattern in ("*.tmp", ".*.tmp", ".now.*", "lease.*.dead"):
                for path in folder.glob(pattern):
                    yield _draft(path, f"run {folder.name}")
    for path in (root / "artifacts").glob("*/*/.*.tmp"):
        yield _draft(path, path.parent.name)
    for path in root.glob(".writable.*"):
        yield _draft(path, "a start")


def _draft(path: Path, owner: str) -> Leftover:
    return Leftover(kind="draft", path=path, bytes=size_of(path), owner=owner, needed="")


def _damaged(root: Path, held: frozenset[str]) -> Iterator[Leftover]:
    for path in (root / DAMAGED).glob("*"):
        key = path.name.rpartition(".")[0]
        waits = key in held and not _committed(root, key)
        needed = "its artifact is not computed again yet" if waits else ""
        yield Leftover(kind="damaged", path=path, bytes=size_of(path), owner=key, needed=needed)


def _trash(root: Path) -> Iterator[Leftover]:
    for path in (root / TRASH).glob("*"):
        yield Leftover(kind="trash", path=path, bytes=size_of(path), owner="an interrupted gc", needed="")


def _committed(root: Path, key: str) -> bool:
    return (Store(root).folder(key.rpartition("-")[0], key) / MANIFEST).is_file()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Worker:
    """The process that last took a key's lock."""

    name: str
    """In words."""
    at_work: bool
    """Whether it still has the lock."""


def _worker_on(root: Path, key: str) -> _Worker:
    path = root / "locks" / key
    if not path.is_file():
        return _Worker(name="an unknown process", at_work=False)
    with path.open("r") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
            at_work = False
        except BlockingIOError:
            at_work = True
        return _Worker(name=handle.read().strip() or "an unknown process", at_work=at_work)


def _live_elsewhere(root: Path) -> str:
    """Another machine's locks may be invisible here; while one of its processes lives, its workspaces stay."""
    for folder in runs.runs_folder(root).glob("*"):
        found = lease.holder_elsewhere(folder)
        if found is not None:
            return f"{found.holder} may work on it"
    return ""
