"""Verification of artifacts against their commit records: every file, its size and digest."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from hashlib import file_digest
from pathlib import Path
from typing import Any

from infuser_core.errors import DamagedArtifactError
from infuser_core.store import pruned
from infuser_core.store.recipe import MANIFEST, Recipe, Record, digest_of, read_record

Progress = Callable[[int, int], None]
"""Bytes looked at, bytes to look at."""
_WORKERS = min(4, os.cpu_count() or 1)
_GARBLED = (KeyError, TypeError, AttributeError)
"""Errors from reading a record that is JSON, but not of its form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is not as it should be."""

    kind: str
    """A word for scripts, e.g. `file_changed`."""
    damage: bool
    """True for damage; False for a note: harmless, and explained."""
    what: str
    """One line for people, with the path or the key."""
    remedy: str = ""
    """Remedy in words; empty where nothing need be done."""
    key: str = ""
    """Artifact at fault, if one is."""
    runs: tuple[str, ...] = ()
    """Runs that hold the artifact."""
    bytes: int = 0
    """Size of what is left over; 0 where that says nothing."""

    @property
    def line(self) -> str:
        """For people."""
        return f"{'damaged' if self.damage else 'note':8} {self.what}{f': {self.remedy}' if self.remedy else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """Findings about some artifacts."""

    problems: Sequence[Problem]
    """Damage and notes, artifact by artifact; without the runs."""
    files: int
    """Files whose digests were compared."""
    bytes: int
    """Their sizes."""
    pruned: int
    """Artifacts that gc thinned out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """Findings about a run or the whole store."""

    scope: str
    """Run, or `store`."""
    artifacts: int
    """Artifacts looked at."""
    checked: Checked
    """Their files."""
    seconds: float
    """Time of the look, seconds."""
    problems: Sequence[Problem]
    """Damage first, then notes."""

    @property
    def damage(self) -> list[Problem]:
        """Problems to repair."""
        return [problem for problem in self.problems if problem.damage]

    @property
    def notes(self) -> list[Problem]:
        """Harmless problems."""
        return [problem for problem in self.problems if not problem.damage]

    def to_json(self) -> dict[str, Any]:
        """The finding for scripts."""
        return {
            "scope": self.scope,
            "healthy": not self.damage,
            "artifacts": self.artifacts,
            **{name: getattr(self.checked, name) for name in ("files", "bytes", "pruned")},
            "seconds": round(self.seconds, 3),
            "damage": [asdict(problem) for problem in self.damage],
            "notes": [asdict(problem) for problem in self.notes],
        }

    def text(self) -> str:
        """The finding for people: one line per problem."""
        found = self.checked
        looked = f"{self.artifacts} artifacts, {found.files} files, {size(found.bytes)} in {self.seconds:.1f} s"
        pruned = f"; {found.pruned} checkpoints pruned by gc" if found.pruned else ""
        state = f"{len(self.damage)} damaged" if self.damage else "healthy"
        lines = [problem.line for problem in (*self.damage, *self.notes)]
        return "\n".join([*lines, f"{self.scope}: {state} ({looked}{pruned}; {len(self.notes)} notes)"])


def size(count: int) -> str:
    """Bytes for people, in decimal units."""
    amount, unit = float(count), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if amount < 1000:
            break
        amount, unit = amount / 1000, larger
    return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    """A file whose content is to be compared."""

    path: Path
    """Where it lies."""
    key: str
    """Its artifact."""
    sha256: str
    """Digest in the commit record."""
    bytes: int
    """Its size."""

    def changed(self) -> Problem | None:
        """Problem with the content; None where nothing is."""
        why = "its content changed since it was written"
        try:
            with self.path.open("rb") as handle:
                if file_digest(handle, "sha256").hexdigest() == self.sha256:
                    return None
        except OSError as error:
            why = f"unreadable: {error.strerror or error}"
        return _damage("file_changed", self.key, f"{self.path}: {why}")


def check(folders: Sequence[Path], progress: Progress = lambda done, total: None) -> Checked:
    """Look at artifacts' folders, several files at once: digests are computed outside Python's lock."""
    found = [each for folder in folders for each in _look(folder)]
    problems = [each for each in found if isinstance(each, Problem)]
    files = [each for each in found if isinstance(each, _File)]
    total, done = sum(file.bytes for file in files), 0
    with ThreadPoolExecutor(_WORKERS) as pool:
        for file, problem in zip(files, pool.map(_File.changed, files), strict=True):
            problems += [problem] if problem else []
            done += file.bytes
            progress(done, total)
    thin = sum((folder / pruned.FILE).is_file() for folder in folders)
    return Checked(problems=problems, files=len(files), bytes=total, pruned=thin)


def _damage(kind: str, key: str, what: str) -> Problem:
    return Problem(kind=kind, damage=True, what=what, key=key)


def _look(folder: Path) -> list[Problem | _File]:
    """Findings from an artifact's record alone: what is wrong already, and files whose content is to be compared."""
    key, record = folder.name, folder / MANIFEST
    if not record.is_file():
        return [_damage("record_missing", key, f"{folder} has no commit record {MANIFEST}")]
    try:
        manifest, removed = read_record(folder), pruned.read(folder)
        expected = [_File(key=key, path=folder / name, **facts) for name, facts in manifest.files.items()]
        wrong = [_damage("record_wrong", key, line) for line in _contradictions(folder, manifest)]
    except DamagedArtifactError as error:
        return [_damage("record_unreadable", key, error.message)]
    except _GARBLED as error:
        return [_damage("record_unreadable", key, f"{record} is garbled: {error!r}")]
    found: list[Problem | _File] = [*wrong]
    for file in expected:
        if file.path.is_file():
            length = file.path.stat().st_size
            cut = f"{file.path} has {length} bytes instead of {file.bytes}"
            found.append(file if length == file.bytes else _damage("file_truncated", key, cut))
        elif file.path.relative_to(folder).as_posix() not in removed:
            found.append(_damage("file_missing", key, f"{file.path} is missing"))
    return [*found, *_notes(folder, manifest, removed)]


def _contradictions(folder: Path, manifest: Record) -> Iterator[str]:
    """A garbled record may still be JSON; it then disagrees with its own digests, or with the folder's name."""
    content = {name: facts["sha256"] for name, facts in manifest.files.items() if name not in manifest.volatile}
    if digest_of(content) != manifest.ref.digest:
        yield f"{folder / MANIFEST} names other files than its digest was taken from"
    key = Recipe(**manifest.recipe).key
    if not key == manifest.key == folder.name:
        yield f"{folder / MANIFEST} is not the record of {folder.name}: its recipe gives {key}"


def _notes(folder: Path, manifest: Record, removed: dict[str, pruned.Removed]) -> Iterator[Problem]:
    left = [folder / name for name in removed if (folder / name).exists()]
    if left:
        yield Problem(
            kind="pruning_unfinished",
            damage=False,
            key=folder.name,
            what=f"{folder}: pruning was interrupted, {len(left)} files are still there",
            remedy="`infuser gc --apply` ends it",
            bytes=sum(path.stat().st_size for path in left),
        )
    known = {MANIFEST, pruned.FILE, *manifest.files}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and name not in known:
            remedy = "`infuser gc --apply` removes it" if name.endswith(".tmp") else "nobody reads it; take it away"
            what = f"{path} is no part of the artifact ({size(path.stat().st_size)})"
            yield Problem(kind="file_foreign", damage=False, key=folder.name, what=what, remedy=remedy)
