"""Damage at rest: what disks, copies and people do to the files of a store while nobody uses it."""

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from script import Fault

_BLOCK = 4096


def sort_of(name: str) -> str:
    """Sort of a file of a store, by its path below the root."""
    top, *inner = name.split("/")
    last = inner[-1] if inner else top
    if top == "artifacts":
        if last in ("artifact.json", "pruned.json"):
            return last.removesuffix(".json").replace("artifact", "manifest")
        if inner[0] in ("anchor", "update_solver", "update_generator"):
            return "checkpoint"
        return "table" if last.endswith(".parquet") else "content"
    if top == "runs":
        return "report" if len(inner) > 2 else last.replace(".", "-")
    if top == "evaluations":
        return f"evaluation-{last.replace('.', '-')}" if last.startswith(("journal", "evaluation")) else "evaluation"
    if top == "locks" or last == "lock":
        return "locks"
    if top in (".staging", ".partial"):
        return top.removeprefix(".")
    return "corpus" if top == "textbooks" else last.replace(".", "-")


def sorts(root: Path) -> dict[str, list[Path]]:
    """Files of a store by their sort, in a stable order. Prefect's and the fonts' caches belong to others."""
    found: dict[str, list[Path]] = {}
    for path in sorted(path for path in root.rglob("*") if path.is_file() and not path.is_symlink()):
        name = path.relative_to(root).as_posix()
        if not name.startswith("prefect/"):
            found.setdefault(sort_of(name), []).append(path)
    return found


def chosen(root: Path, fault: Fault) -> Path | None:
    """The file that a fault hits; None where the store has none of its sort."""
    files = sorts(root).get(fault.target, [])
    return files[int(fault.which * len(files))] if files else None


def flip(path: Path, at: float) -> None:
    """One bit."""
    content = bytearray(path.read_bytes())
    bit = int(at * len(content) * 8)
    if content:
        content[bit // 8] ^= 1 << bit % 8
    _rewrite(path, bytes(content))


def truncate(path: Path, at: float) -> None:
    """The end is lost."""
    content = path.read_bytes()
    _rewrite(path, content[: int(at * len(content))])


def zero(path: Path, at: float) -> None:
    """A block that was never written out."""
    content = bytearray(path.read_bytes())
    start = int(at * len(content)) // _BLOCK * _BLOCK
    end = min(start + _BLOCK, len(content))
    content[start:end] = bytes(end - start)
    _rewrite(path, bytes(content))


def empty(path: Path, at: float) -> None:
    """The file is there without its content."""
    _rewrite(path, b"")


def delete(path: Path, at: float) -> None:
    """The file is gone."""
    path.unlink()


def append(path: Path, at: float) -> None:
    """Bytes of something else at the end."""
    _rewrite(path, path.read_bytes() + bytes(int(at * 256 + index * 37) % 256 for index in range(64)))


def repeat(path: Path, at: float) -> None:
    """A line stands there twice; in binary files, what lies between two newlines."""
    lines = path.read_bytes().splitlines(keepends=True)
    number = int(at * len(lines))
    _rewrite(path, b"".join([*lines[: number + 1], *lines[number:]]))


def drop(path: Path, at: float) -> None:
    """A line is missing."""
    lines = path.read_bytes().splitlines(keepends=True)
    del lines[int(at * len(lines)) : int(at * len(lines)) + 1]
    _rewrite(path, b"".join(lines))


def swap(path: Path, at: float) -> None:
    """Two files of one name, at their next best places, have each other's content."""
    above = path.parents[2 if path.parents[2].name in ("artifacts", "runs", "evaluations") else 1]
    others = sorted(other for other in above.rglob(path.name) if other != path and other.is_file())
    if others:
        other = others[int(at * len(others))]
        mine, theirs = path.read_bytes(), other.read_bytes()
        _rewrite(path, theirs)
        _rewrite(other, mine)


def link(path: Path, at: float) -> None:
    """A symbolic link to the same content outside of the store, or, one time in two, to nothing."""
    outside = Path(tempfile.gettempdir()) / f"chaos-outside-{os.getpid()}"
    # With its times: they order runs that began in the same second.
    shutil.copy2(path, outside)
    path.unlink()
    path.symlink_to(outside if at < 0.5 else outside.with_name("nowhere"))


def folder(path: Path, at: float) -> None:
    """The whole folder around it is gone."""
    shutil.rmtree(path.parent)


def _rewrite(path: Path, content: bytes) -> None:
    """Another file in its place: the undisturbed store shares its files by hard links."""
    times = path.stat()
    path.unlink()
    path.write_bytes(content)
    # Damage by the disk leaves the times as they are.
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


HARMS: dict[str, Callable[[Path, float], None]] = {
    harm.__name__: harm for harm in (flip, truncate, zero, empty, delete, append, repeat, drop, swap, link, folder)
}
_LINES = ("repeat", "drop")
_BINARY = ("table", "checkpoint", "staging", "partial")


def kinds(root: Path) -> dict[str, list[str]]:
    """Sorts of files of this store that each kind of harm is done to."""
    there = sorted(sorts(root))
    found = {kind: there for kind in HARMS if kind not in (*_LINES, "folder")}
    found |= {kind: [sort for sort in there if sort not in _BINARY] for kind in _LINES}
    # A run's or an evaluation's folder that is gone is one that somebody removed.
    return found | {"folder": ["manifest", "report"]}


def harm(root: Path, fault: Fault) -> str:
    """Do it; returns the path that was harmed, below the root."""
    path = chosen(root, fault)
    if path is None:
        return ""
    HARMS[fault.kind](path, fault.at)
    return path.relative_to(root).as_posix()
