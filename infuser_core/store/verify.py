"""Verification of artifacts against their commit records: every file, its size and digest."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from hashlib import file_digest
from pathlib import Path
from typing import Any

from infuser_core.errors import DamagedArtifactError, StoreError
from infuser_core.store import pruned
from infuser_core.store.recipe import Recipe, digest_of
from infuser_core.store.store import MANIFEST, Manifest, read_manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is not as it should be."""

    kind: str
    """A word for scripts, e.g. `file_changed`."""
    damage: bool
    """True for damage; False for a note: harmless, and explained."""
    what: str
    """One line for people, with the path or the key."""
    remedy: str
    """What to do; empty where nothing need be done."""
    key: str = ""
    """Artifact at fault, if one is."""
    runs: tuple[str, ...] = ()
    """Runs that hold the artifact."""
    bytes: int = 0
    """Size of what is left over; 0 where that says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """What a look at a run or at the whole store found."""

    scope: str
    """Run, or `store`."""
    artifacts: int
    """Artifacts looked at."""
    files: int
    """Files whose digests were compared."""
    bytes: int
    """Their sizes."""
    pruned: int
    """Checkpoints that gc thinned out."""
    seconds: float
    """Time of the look, seconds."""
    problems: Sequence[Problem]
    """Damage first, then notes."""

    @property
    def damage(self) -> list[Problem]:
        """What must be repaired."""
        return [problem for problem in self.problems if problem.damage]

    @property
    def notes(self) -> list[Problem]:
        """What is harmless."""
        return [problem for problem in self.problems if not problem.damage]

    def to_json(self) -> dict[str, Any]:
        """The finding for scripts."""
        return {
            "scope": self.scope,
            "healthy": not self.damage,
            "artifacts": self.artifacts,
            "files": self.files,
            "bytes": self.bytes,
            "pruned": self.pruned,
            "seconds": round(self.seconds, 3),
            "damage": [asdict(problem) for problem in self.damage],
            "notes": [asdict(problem) for problem in self.notes],
        }

    def text(self) -> str:
        """The finding for people: one line per problem."""
        lines = [_line("damaged", problem) for problem in self.damage]
        lines += [_line("note", problem) for problem in self.notes]
        looked = f"{self.artifacts} artifacts, {self.files} files, {size(self.bytes)} in {self.seconds:.1f} s"
        pruned = f"; {self.pruned} checkpoints pruned by gc" if self.pruned else ""
        state = f"{len(self.damage)} damaged" if self.damage else "healthy"
        return "\n".join([*lines, f"{self.scope}: {state} ({looked}{pruned}; {len(self.notes)} notes)"])


def _line(word: str, problem: Problem) -> str:
    remedy = f": {problem.remedy}" if problem.remedy else ""
    return f"{word:8} {problem.what}{remedy}"


def size(count: int) -> str:
    """Bytes for people, in decimal units."""
    amount, unit = float(count), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if amount < 1000:
            break
        amount, unit = amount / 1000, larger
    return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"


Progress = Callable[[int, int], None]
"""Bytes looked at, bytes to look at."""
_WORKERS = min(4, os.cpu_count() or 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What looking at some artifacts gave."""

    problems: Sequence[Problem]
    """Damage and notes, artifact by artifact; without the runs."""
    files: int
    """Files whose digests were compared."""
    bytes: int
    """Their sizes."""
    pruned: int
    """Artifacts that gc thinned out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    """A file whose content is to be compared."""

    key: str
    """Its artifact."""
    path: Path
    """Where it lies."""
    sha256: str
    """What the commit record says."""
    bytes: int
    """Its size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """What an artifact's record alone tells."""

    problems: Sequence[Problem]
    """What is wrong already."""
    files: Sequence[_File] = ()
    """Files whose content is to be compared."""
    pruned: bool = False
    """Whether gc thinned it out."""


def check(folders: Sequence[Path], progress: Progress = lambda done, total: None) -> Checked:
    """Look at artifacts' folders, several files at once: digests are computed outside Python's lock."""
    looks = [_look(folder) for folder in folders]
    problems = [problem for look in looks for problem in look.problems]
    files = [file for look in looks for file in look.files]
    total, done = sum(file.bytes for file in files), 0
    with ThreadPoolExecutor(_WORKERS) as pool:
        for file, found in zip(files, pool.map(_digest, files), strict=True):
            if found != file.sha256:
                problems.append(_changed(file, found))
            done += file.bytes
            progress(done, total)
    return Checked(problems=problems, files=len(files), bytes=total, pruned=sum(look.pruned for look in looks))


def _digest(file: _File) -> str:
    try:
        with file.path.open("rb") as handle:
            return file_digest(handle, "sha256").hexdigest()
    except OSError as error:
        return f"unreadable: {error.strerror or error}"


def _changed(file: _File, found: str) -> Problem:
    why = found if found.startswith("unreadable") else "its content changed since it was written"
    return _damage("file_changed", file.key, f"{file.path}: {why}")


def _damage(kind: str, key: str, what: str) -> Problem:
    return Problem(kind=kind, damage=True, what=what, remedy="", key=key)


def _look(folder: Path) -> _Look:
    key = folder.name
    if not (folder / MANIFEST).is_file():
        return _Look(problems=[_damage("record_missing", key, f"{folder} has no commit record {MANIFEST}")])
    try:
        manifest = read_manifest(folder)
        removed = pruned.read(folder)
        problems = [_damage("record_wrong", key, line) for line in _contradictions(folder, manifest)]
        expected = [
            _File(key=key, path=folder / name, sha256=facts["sha256"], bytes=facts["bytes"])
            for name, facts in manifest.files.items()
        ]
    except DamagedArtifactError as error:
        return _Look(problems=[_damage("record_unreadable", key, error.message)])
    except (KeyError, TypeError, AttributeError) as error:
        return _Look(problems=[_damage("record_unreadable", key, f"{folder / MANIFEST} is garbled: {error!r}")])
    whole = []
    for file in expected:
        if not file.path.is_file():
            if file.path.relative_to(folder).as_posix() not in removed:
                problems.append(_damage("file_missing", key, f"{file.path} is missing"))
        elif file.path.stat().st_size != file.bytes:
            what = f"{file.path} has {file.path.stat().st_size} bytes instead of {file.bytes}"
            problems.append(_damage("file_truncated", key, what))
        else:
            whole.append(file)
    return _Look(problems=[*problems, *_notes(folder, manifest, removed)], files=whole, pruned=bool(removed))


def _contradictions(folder: Path, manifest: Manifest) -> Iterator[str]:
    """A garbled record may still be JSON; it then disagrees with its own digests, or with the folder's name."""
    content = {name: facts["sha256"] for name, facts in manifest.files.items() if name not in manifest.volatile}
    if digest_of(content) != manifest.ref.digest:
        yield f"{folder / MANIFEST} names other files than its digest was taken from"
    key = Recipe(**manifest.recipe).key if _is_recipe(manifest) else ""
    if not key == manifest.ref.key == folder.name:
        yield f"{folder / MANIFEST} is not the record of {folder.name}: its recipe gives {key or 'no key'}"


def _is_recipe(manifest: Manifest) -> bool:
    return set(manifest.recipe) == set(Recipe.__dataclass_fields__)


def _notes(folder: Path, manifest: Manifest, removed: dict[str, pruned.Removed]) -> Iterator[Problem]:
    left = [name for name in removed if (folder / name).exists()]
    if left:
        yield Problem(
            kind="pruning_unfinished",
            damage=False,
            key=folder.name,
            what=f"{folder}: pruning was interrupted, {len(left)} files are still there",
            remedy="`infuser gc --apply` ends it",
            bytes=sum((folder / name).stat().st_size for name in left),
        )
    known = {MANIFEST, pruned.FILE, *manifest.files}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and name not in known:
            remedy = "`infuser gc --apply` removes it" if name.endswith(".tmp") else "nobody reads it; take it away"
            what = f"{path} is no part of the artifact ({size(path.stat().st_size)})"
            yield Problem(kind="file_foreign", damage=False, key=folder.name, what=what, remedy=remedy)


def recorded(folder: Path) -> Manifest | None:
    """The commit record where it can be read and agrees with itself."""
    try:
        manifest = read_manifest(folder)
        return None if any(_contradictions(folder, manifest)) else manifest
    except (StoreError, KeyError, TypeError, AttributeError):
        return None
