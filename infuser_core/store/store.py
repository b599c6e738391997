"""The artifact store: commits a stage's output as an immutable artifact, and verifies artifacts when they are read.

Layout: `artifacts/<phase>/<key>/{<table>.parquet, files..., artifact.json}`. The key is computed from the recipe:
everything that determines the artifact. An artifact is committed by renaming its complete folder, so a folder in
`artifacts` is never partly written.
"""

import errno
import fcntl
import os
import platform
import shutil
import time
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from glob import escape
from pathlib import Path
from typing import Any, TypeVar

from infuser_core.errors import StoreError, UsageError
from infuser_core.schemas import SCHEMA_VERSION
from infuser_core.store import pruned, verify
from infuser_core.store.adapter_files import base_folder
from infuser_core.store.recipe import MANIFEST, ArtifactRef, Recipe, Record, artifact_folder, read_record
from infuser_core.system import fault_points as faults
from infuser_core.system import sealed
from infuser_core.system.durable import fsync, write_errors
from infuser_core.system.sealed import digest_of

STAGING, PARTIAL, DAMAGED = ".staging", ".partial", "damaged"
"""Folders of the store for workspaces of stages, for finished pieces of long stages, and for what was put aside."""
Row = TypeVar("Row")
_restoring: dict[str, bool] = {}
"""Keys of the artifacts that this process restores; the value says whether they are to stay (see `is_repairing`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of one type that a phase returns to be written as one parquet file."""

    row_type: type
    """Dataclass of the rows; defines the columns even if there are no rows."""
    rows: Sequence[Any]
    """The rows, in the order to be written."""
    volatile: bool = False
    """True if the rows depend on this execution (times, addresses): stored and verified, but not in the digest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Output of a phase that is not a file in its workspace: tables, a summary, and the hardware used."""

    tables: Mapping[str, Table]
    """Tables by name."""
    summary: Mapping[str, Any] = field(default_factory=dict)
    """A few JSON values that sum up the result: counts, norms, status."""
    machine: Mapping[str, Any] = field(default_factory=dict)
    """Hardware and settings by engine; not part of the artifact's digest."""


class Store:
    """Reads and writes artifacts below one root folder. Safe for several processes; the first commit of a key wins."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def folder(self, key: str) -> Path:
        """Path of an artifact's folder, whether it exists or not."""
        return artifact_folder(self.root, key)

    def find(self, recipe: Recipe) -> ArtifactRef | None:
        """The committed artifact of this recipe; None if it is missing, or pruned and being restored."""
        folder = self.folder(recipe.key)
        if recipe.key in _restoring and pruned.read_removed(folder):
            return None
        return read_record(folder).ref if (folder / MANIFEST).is_file() else None

    def manifest(self, ref: ArtifactRef) -> Record:
        """Read an artifact's commit record. Raises StoreError if it is missing or damaged."""
        return read_record(self.folder(ref.key))

    @contextmanager
    def exclusive(self, recipe: Recipe) -> Iterator[None]:
        """Hold the lock of the recipe's key: one process computes the artifact while others wait.

        The lock is released when its holder ends, even if it is killed.
        """
        locks = self.root / "locks"
        with _store_errors(self.root):
            locks.mkdir(parents=True, exist_ok=True)
        with (locks / recipe.key).open("a+") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            with _store_errors(self.root):
                # Read by gc and doctor when they find the workspace of a dead process.
                handle.truncate(0)
                handle.write(f"process {os.getpid()} on {platform.node()}")
                handle.flush()
            # This process has the lock, so other workspaces of the key are left from killed processes.
            for workspace in (self.root / STAGING).glob(f"{recipe.key}.*"):
                shutil.rmtree(workspace, ignore_errors=True)
            yield

    @contextmanager
    def workspace(self, recipe: Recipe) -> Iterator[Path]:
        """Create a temporary folder in the store for a phase's files, which is deleted at the end unless committed."""
        folder = self.root / STAGING / f"{recipe.key}.{uuid.uuid4().hex}"
        with _store_errors(self.root):
            folder.mkdir(parents=True)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def partial(self, recipe: Recipe) -> Path:
        """Create or find the folder in which a long phase stores finished pieces of this recipe until it commits.

        The caller must hold `exclusive`.
        """
        folder = self.root / PARTIAL / recipe.key
        with _store_errors(self.root):
            folder.mkdir(parents=True, exist_ok=True)
        return folder

    def commit(self, recipe: Recipe, workspace: Path, outcome: Outcome, *, seconds: float) -> ArtifactRef:
        """Write the tables and the commit record into the workspace, then rename it to the artifact's folder.

        Returns the artifact of an earlier commit if there is one. Raises StoreError if writing fails, or if a pruned
        artifact that was computed again has another digest.
        """
        from infuser_core.store import tables

        with _store_errors(self.root):
            for name, table in outcome.tables.items():
                tables.write_rows(workspace / f"{name}.parquet", table.rows, table.row_type)
                faults.point(f"{recipe.phase}:writing")
            paths = sorted(path for path in workspace.rglob("*") if path.is_file())
            names = [path.relative_to(workspace).as_posix() for path in paths]
            files = dict(zip(names, verify.describe_files(paths), strict=True))
            volatile = sorted(f"{name}.parquet" for name, table in outcome.tables.items() if table.volatile)
            digest = digest_of({name: facts["sha256"] for name, facts in files.items() if name not in volatile})
            ref = ArtifactRef(kind=recipe.phase, key=recipe.key, digest=digest)
            record = _record(ref, recipe, files, volatile, outcome, seconds)
            (workspace / MANIFEST).write_text(sealed.dumps(record))
            for path in [*workspace.rglob("*"), workspace]:
                fsync(path)
            faults.point(f"{recipe.phase}:before_rename")
            won = self._rename(workspace, ref)
        faults.point(f"{recipe.phase}:after_rename")
        shutil.rmtree(self.root / PARTIAL / recipe.key, ignore_errors=True)
        return ref if won else self.manifest(ref).ref

    def _rename(self, source: Path, ref: ArtifactRef) -> bool:
        """Move a folder to the artifact's path; returns False if the artifact was there already, complete or pruned."""
        target = self.folder(ref.key)
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.is_symlink() or (target.exists() and not (target / MANIFEST).exists()):
            # Not from a commit: the record was deleted, or the folder replaced by a link. Move it out of the way.
            self.put_aside(target)
        if pruned.read_removed(target):
            if read_record(target).ref != ref:
                raise StoreError(
                    f"computing {ref.key} again gave other bits than the pruned original, digest {ref.digest[:16]}",
                    hint="its phase is not deterministic here: use the engine and the machine that it was made with",
                )
            pruned.restore_files(source, target)
            return False
        try:
            source.rename(target)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                return False
            raise
        for folder in (target.parent, target.parent.parent):
            fsync(folder)
        return True

    def put_aside(self, folder: Path) -> Path:
        """Move an artifact's folder, or another damaged file, into the folder `damaged`; returns its new path."""
        aside = self.root / DAMAGED / f"{folder.name}.{uuid.uuid4().hex[:8]}"
        aside.parent.mkdir(exist_ok=True)
        folder.rename(aside)
        for parent in (aside.parent, folder.parent):
            fsync(parent)
        return aside

    def sweep(self) -> None:
        """Remove the pieces of committed artifacts, left by processes killed just after the commit."""
        for folder in (self.root / PARTIAL).glob("*"):
            if (self.folder(folder.name) / MANIFEST).is_file():
                shutil.rmtree(folder, ignore_errors=True)

    def path(self, ref: ArtifactRef, name: str) -> Path:
        """Path of one of the artifact's files, after verifying its digest (see `verify.verified_paths`)."""
        (path,) = verify.verified_paths(self.root, [(self.manifest(ref), name)])
        return path

    def verified_folder(self, ref: ArtifactRef) -> Path:
        """Path of the artifact's folder, after verifying every file: for engines that load entire folders.

        AdamW moments that gc removed may be missing: samplers do not need them, and a trainer refuses such a folder. If
        the artifact is an adapter, its base model is also verified.
        """
        folder, record = self.folder(ref.key), self.manifest(ref)
        thinned = {name for name, each in pruned.read_removed(folder).items() if each.part == pruned.MOMENTS}
        names = [name for name in record.files if name not in thinned or (folder / name).exists()]
        verify.verified_paths(self.root, [(record, name) for name in names])
        if (base := base_folder(folder)) is not None:
            below = read_record(base)
            verify.verified_paths(self.root, [(below, name) for name in below.files])
        return folder

    def rows(self, ref: ArtifactRef, table: str, row_type: type[Row]) -> list[Row]:
        """Read the rows of one of the artifact's tables, in their committed order."""
        # Imported here: importing arrow takes a tenth of a second, and most commands read no rows.
        from infuser_core.store import tables

        return tables.read_rows(self.path(ref, f"{table}.parquet"), row_type)

    def refs(self, start: str = "") -> list[ArtifactRef]:
        """Find artifacts whose key or id begins with `start`, sorted by phase and key; reads only their records."""
        key = start.partition("@")[0]
        paths = sorted((self.root / "artifacts").glob(f"*/{escape(key)}*/{MANIFEST}")) if "/" not in key else []
        return [ref for path in paths if (ref := read_record(path.parent).ref).id.startswith(start)]

    def ref(self, start: str) -> ArtifactRef | None:
        """The artifact whose key or id begins with `start`; None if there is none. Raises UsageError for several."""
        refs = self.refs(start)
        if len(refs) > 1:
            raise UsageError(f"{len(refs)} artifacts start with {start}", hint=f"e.g. {refs[0].key} and {refs[1].key}")
        return refs[0] if refs else None


@contextmanager
def restoring(keys: Collection[str], *, stay: bool) -> Iterator[None]:
    """Within the block, treat pruned artifacts with these keys as missing, so that stages compute them again.

    Applies to this process. If they are to `stay`, retention prunes nothing during the block.
    """
    _restoring.update(dict.fromkeys(keys, stay))
    try:
        yield
    finally:
        for key in keys:
            del _restoring[key]


def is_repairing() -> bool:
    """Whether this process is restoring pruned artifacts that are to stay, so that retention must prune nothing."""
    return any(_restoring.values())


def _record(
    ref: ArtifactRef,
    recipe: Recipe,
    files: Mapping[str, Mapping[str, Any]],
    volatile: Sequence[str],
    outcome: Outcome,
    seconds: float,
) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": ref.kind,
        "key": ref.key,
        "digest": ref.digest,
        "recipe": recipe.to_json(),
        "files": files,
        "volatile": volatile,
        "rows": {name: len(table.rows) for name, table in outcome.tables.items()},
        "summary": outcome.summary,
        "seconds": round(seconds, 4),
        "created": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "host": platform.node(),
        "python": platform.python_version(),
        **({"machine": dict(outcome.machine)} if outcome.machine else {}),
    }


def _store_errors(root: Path) -> AbstractContextManager[None]:
    hint = "free some space or set INFUSER_STORE to a folder you may write; then `infuser resume`"
    return write_errors(f"the store at {root}", hint=hint)
