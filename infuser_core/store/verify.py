"""Verify artifacts' files against the sizes and digests in their commit records, for readers and `infuser doctor`."""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from infuser_core.errors import DamagedArtifactError, StoreError
from infuser_core.store import pruned
from infuser_core.store.recipe import LINKED, MANIFEST, REMEDY, Record, artifact_folder, read_record
from infuser_core.system import sealed
from infuser_core.system.sealed import digest_of_file

Item = TypeVar("Item")
Value = TypeVar("Value")
Progress = Callable[[int, int], None]
"""`progress(done, total)`: bytes verified so far, bytes to verify."""
_WORKERS = min(16, os.cpu_count() or 1)
_GARBLED = (KeyError, TypeError, AttributeError)
"""Errors raised by reading a record that is JSON of another form."""
REMEMBERED = ".verified.json"
"""File of the store with digests of verified large files, so that not every command reads a 10 GB checkpoint again."""
_LARGE = 1 << 20
"""Minimum size of files whose digest is remembered, bytes; reading a smaller file is faster than the look-up."""
_SETTLED = 2e9
"""Minimum age of files whose digest is remembered, nanoseconds: a younger one could change without a new time stamp."""

Identity = tuple[int, int, int, int]
"""Inode, size, and times of the last change of content and inode in nanoseconds. Differs if the content differs."""
_known: set[tuple[Identity, str]] = set()
"""Identities of the files that this process has read, with their digests."""
_ahead: dict[Path, tuple[Identity, str]] = {}
"""Identity and digest of files that were just written, by path, until their artifact is committed."""
_trusting = ContextVar("trusting", default=False)
"""Whether verification of digests is off, at the user's request (`--trust`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A finding of the check: damage, or a harmless note."""

    kind: str
    """Identifier of the kind of problem for scripts, e.g. `file_changed`."""
    damage: bool
    """True for damage, False for a harmless note."""
    what: str
    """Human-readable description on one line, with the path or the key."""
    lost: bool = False
    """Whether the damage cannot be repaired from the store: the user must supply what was lost."""
    remedy: str = ""
    """Action to take; empty if nothing needs to be done."""
    key: str = ""
    """Key of the artifact at fault; empty if it is not an artifact."""
    runs: tuple[str, ...] = ()
    """Names of the runs that hold the artifact."""
    bytes: int = 0
    """Size of left-over files, bytes; 0 for other problems."""

    @property
    def line(self) -> str:
        """The problem and its remedy as a human-readable line."""
        return f"{'damaged' if self.damage else 'note':8} {self.what}{f': {self.remedy}' if self.remedy else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """Result of checking the artifacts and records of a run or of the entire store."""

    scope: str
    """`run NAME`, or `store`."""
    artifacts: int
    """Number of artifacts checked."""
    files: int
    """Number of files whose digests were compared."""
    bytes: int
    """Total size of these files, bytes."""
    pruned: int
    """Number of artifacts from which gc removed files."""
    seconds: float
    """Duration of the check, seconds."""
    problems: Sequence[Problem]
    """Damage first, then notes."""

    @property
    def damage(self) -> list[Problem]:
        """Problems that need repair."""
        return [problem for problem in self.problems if problem.damage]

    @property
    def notes(self) -> list[Problem]:
        """Harmless problems."""
        return [problem for problem in self.problems if not problem.damage]

    @property
    def state(self) -> str:
        """State of the checked part: healthy, repairable (by `infuser doctor --repair`), or lost (not repairable)."""
        if not self.damage:
            return "healthy"
        return "lost" if any(problem.lost for problem in self.damage) else "repairable"

    def to_json(self) -> dict[str, Any]:
        """Convert the result to a JSON object for scripts."""
        return {
            "scope": self.scope,
            "state": self.state,
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
        """Format the result as human-readable text, one line per problem."""
        looked = f"{self.artifacts} artifacts, {self.files} files, {format_size(self.bytes)} in {self.seconds:.1f} s"
        pruned = f"; {self.pruned} checkpoints pruned by gc" if self.pruned else ""
        lost = sum(problem.lost for problem in self.damage)
        state = f"{len(self.damage)} damaged" + (f", {lost} of it lost" if lost else "") if self.damage else "healthy"
        lines = [problem.line for problem in (*self.damage, *self.notes)]
        return "\n".join([*lines, f"{self.scope}: {state} ({looked}{pruned}; {len(self.notes)} notes)"])


def format_size(count: int) -> str:
    """Format a number of bytes in decimal units, such as `1.5 MB`."""
    amount, unit = float(count), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if amount < 1000:
            break
        amount, unit = amount / 1000, larger
    return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    """A file of an artifact to verify, with its recorded digest and size."""

    path: Path
    """Path of the file."""
    key: str
    """Key of its artifact."""
    sha256: str
    """Digest in the commit record."""
    bytes: int
    """Size in the commit record."""

    def changed(self) -> Problem | None:
        """Compare the file's content with its recorded digest; returns the problem, or None if they agree."""
        why = "does not match the digest recorded when it was written"
        try:
            if digest_of_file(self.path) == self.sha256:
                return None
        except OSError as error:
            why = f"cannot be read: {error.strerror or error}"
        return _damage("file_changed", self.key, f"{self.path} {why}")


def skip_verification() -> None:
    """Turn off the verification of digests before reading, for this process (option `--trust`)."""
    _trusting.set(True)


def describe_file(path: Path) -> dict[str, Any]:
    """Digest and size of a file in the form of commit records; later calls of `verified_paths` need not read it."""
    identity = _identity(path)
    known_identity, sha256 = _ahead.pop(path, (None, ""))
    sha256 = sha256 if known_identity == identity else digest_of_file(path)
    _known.add((identity, sha256))
    return {"sha256": sha256, "bytes": path.stat().st_size}


def describe_files(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """Digests and sizes of several files in the form of commit records; computed in parallel if they are large."""
    return _mapped(describe_file, paths, sum(path.stat().st_size for path in paths))


def remember_digest(path: Path, sha256: str) -> None:
    """Remember a file's digest, computed while writing it, for `describe_file`; ignored if the file changes."""
    _ahead[path] = _identity(path), sha256


def digests_of_files(paths: Sequence[Path]) -> list[str]:
    """sha256 of the content of several files, hex; computed in parallel if they are large."""
    return _mapped(digest_of_file, paths, sum(path.stat().st_size for path in paths))


def _mapped(look: Callable[[Item], Value], files: Sequence[Item], num_bytes: int) -> list[Value]:
    """Apply a function to files, in threads if they are large: digests are computed without holding Python's lock."""
    if num_bytes < _LARGE:
        return [look(file) for file in files]
    with ThreadPoolExecutor(_WORKERS) as pool:
        return list(pool.map(look, files))


def verified_paths(root: Path, files: Iterable[tuple[Record, str]]) -> list[Path]:
    """Paths of artifacts' files, after verifying their digests unless `skip_verification` was called.

    `files` are commit records and file names. A file is read once per process, a large file once per store, unless it
    changes. Raises StoreError for a file that the artifact never had or that gc removed, DamagedArtifactError for a
    missing or changed file.
    """
    recorded = [_file(root, record, name) for record, name in files]
    if not _trusting.get():
        _compare(root, [file for file in recorded if (_identity(file.path), file.sha256) not in _known])
    return [file.path for file in recorded]


def _file(root: Path, record: Record, name: str) -> _File:
    folder = artifact_folder(root, record.key)
    path = folder / name
    if name not in record.files:
        raise StoreError(f"artifact {record.id} has no file {name}", hint=f"expected it at {path}")
    link = link_to(folder, name)
    if link is not None:
        raise DamagedArtifactError(f"{link} {LINKED}", hint=REMEDY)
    if not path.is_file():
        pruned.refuse_pruned(path)
        raise DamagedArtifactError(f"artifact {record.id} has lost its file {name}", hint=f"it was {path}; {REMEDY}")
    return _File(path=path, key=record.key, **record.files[name])


def _compare(root: Path, files: Sequence[_File]) -> None:
    """Raise DamagedArtifactError for the first of these files whose content does not match its recorded digest."""
    large = [file for file in files if file.bytes >= _LARGE]
    remembered: dict[str, list[Any]] = {}
    # If the file with remembered digests is damaged, read all files.
    with suppress(OSError, ValueError, KeyError, TypeError):
        remembered = dict(sealed.read(root / REMEMBERED)["files"]) if large else {}
    unchanged = {
        file.path for file in large if remembered.get(_place(root, file)) == [*_identity(file.path), file.sha256]
    }
    before = {file.path: _identity(file.path) for file in files}
    unread = [file for file in files if file.path not in unchanged]
    for problem in filter(None, _mapped(_File.changed, unread, sum(file.bytes for file in unread))):
        raise DamagedArtifactError(problem.what, hint=REMEDY)
    _known.update((before[file.path], file.sha256) for file in files)
    _remember(root, [file for file in unread if file.bytes >= _LARGE], before, remembered)


def link_to(folder: Path, name: str) -> Path | None:
    """The first symbolic link on the path to a file in an artifact's folder; None if there is none."""
    parts = Path(name).parts
    places = (folder.joinpath(*parts[:count]) for count in range(1, len(parts) + 1))
    return next((place for place in places if place.is_symlink()), None)


def _identity(path: Path) -> Identity:
    stat = path.stat()
    return stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns


def _place(root: Path, file: _File) -> str:
    return file.path.relative_to(root).as_posix()


def _remember(
    root: Path, read: Sequence[_File], before: dict[Path, Identity], remembered: dict[str, list[Any]]
) -> None:
    now = time.time_ns()
    fresh = {
        _place(root, file): [*before[file.path], file.sha256]
        for file in read
        if before[file.path] == _identity(file.path) and before[file.path][3] < now - _SETTLED
    }
    if fresh:
        files = {place: facts for place, facts in remembered.items() if (root / place).is_file()} | fresh
        # Ignore errors: the store may be read-only.
        with suppress(OSError):
            sealed.write(root / REMEMBERED, {"files": files})


def check_artifacts(folders: Sequence[Path], progress: Progress) -> tuple[list[Problem], dict[str, int]]:
    """Verify all files of artifacts in parallel; returns problems, without their runs, and the counts for `Health`."""
    findings = [each for folder in folders for each in _look(folder)]
    problems = [each for each in findings if isinstance(each, Problem)]
    files = [each for each in findings if isinstance(each, _File)]
    total, done_bytes = sum(file.bytes for file in files), 0
    with ThreadPoolExecutor(_WORKERS) as pool:
        for file, problem in zip(files, pool.map(_File.changed, files), strict=True):
            problems += [problem] if problem else []
            done_bytes += file.bytes
            progress(done_bytes, total)
    thin = sum((folder / pruned.FILE).is_file() for folder in folders)
    return problems, {"artifacts": len(folders), "files": len(files), "bytes": total, "pruned": thin}


def _damage(kind: str, key: str, what: str) -> Problem:
    return Problem(kind=kind, damage=True, what=what, key=key)


def _look(folder: Path) -> list[Problem | _File]:
    """Check an artifact's record and file sizes; returns problems, and files whose content is still to be verified."""
    key, record = folder.name, folder / MANIFEST
    if not record.is_file():
        return [_damage("record_missing", key, f"{folder} has no commit record {MANIFEST}")]
    try:
        manifest, removed = read_record(folder), pruned.read_removed(folder)
        expected = [_File(key=key, path=folder / name, **facts) for name, facts in manifest.files.items()]
    except DamagedArtifactError as error:
        return [_damage("record_unreadable", key, error.message)]
    except _GARBLED as error:
        return [_damage("record_unreadable", key, f"{record} is garbled: {error!r}")]
    findings: list[Problem | _File] = []
    for file in expected:
        link = link_to(folder, file.path.relative_to(folder).as_posix())
        if link is not None:
            findings.append(_damage("file_linked", key, f"{link} {LINKED}"))
        elif file.path.is_file():
            length = file.path.stat().st_size
            what = f"{file.path} has {length} bytes instead of {file.bytes}"
            findings.append(file if length == file.bytes else _damage("file_truncated", key, what))
        elif file.path.relative_to(folder).as_posix() not in removed:
            findings.append(_damage("file_missing", key, f"{file.path} is missing"))
    return [*findings, *_notes(folder, manifest, removed)]


def _notes(folder: Path, manifest: Record, removed: dict[str, pruned.Removed]) -> Iterator[Problem]:
    unremoved = [folder / name for name in removed if (folder / name).exists()]
    if unremoved:
        yield Problem(
            kind="pruning_unfinished",
            damage=False,
            key=folder.name,
            what=f"{folder}: pruning was interrupted, {len(unremoved)} files are still there",
            remedy="`infuser gc --apply` ends it",
            bytes=sum(path.stat().st_size for path in unremoved),
        )
    expected = {MANIFEST, pruned.FILE, *manifest.files}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if (path.is_file() or path.is_symlink()) and name not in expected:
            remedy = "`infuser gc --apply` removes it" if name.endswith(".tmp") else "nobody reads it; take it away"
            what = f"{path} is no part of the artifact ({format_size(path.lstat().st_size)})"
            yield Problem(kind="file_foreign", damage=False, key=folder.name, what=what, remedy=remedy)
