"""The artifact store: immutable artifacts, committed by one rename, verified when read.

Layout: `artifacts/<phase>/<key>/{<table>.parquet, files..., artifact.json}`. A folder is absent or complete.
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

Row = TypeVar("Row")
_restoring: dict[str, bool] = {}
"""Keys to compute again, and whether they are to stay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of one type, to be written as one parquet file."""

    row_type: type
    """Dataclass of the rows; gives the columns even when there are none."""
    rows: Sequence[Any]
    """Rows in their order."""
    volatile: bool = False
    """True for facts of this execution (times, addresses): kept and verified, but outside the artifact's digest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Output of a phase, in addition to the files in its workspace."""

    tables: Mapping[str, Table]
    """Table name to rows."""
    summary: Mapping[str, Any] = field(default_factory=dict)
    """A few JSON values for people: counts, norms, status."""
    machine: Mapping[str, Any] = field(default_factory=dict)
    """By engine, what it computed on and how; outside the artifact's digest."""


class Store:
    """Artifacts below one root folder. Several processes may use it at once; the first writer of a key wins."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def folder(self, key: str) -> Path:
        """Folder of an artifact, present or not."""
        return artifact_folder(self.root, key)

    def find(self, recipe: Recipe) -> ArtifactRef | None:
        """The committed artifact of this recipe, or None; also None for one that is being restored."""
        folder = self.folder(recipe.key)
        if recipe.key in _restoring and pruned.read_removed(folder):
            return None
        return read_record(folder).ref if (folder / MANIFEST).is_file() else None

    def manifest(self, ref: ArtifactRef) -> Record:
        """The commit record. Raises StoreError when the artifact is not there."""
        return read_record(self.folder(ref.key))

    @contextmanager
    def exclusive(self, recipe: Recipe) -> Iterator[None]:
        """Hold the key's lock, so that of several processes one computes and the others wait. Dies with its holder."""
        locks = self.root / "locks"
        with _store_errors(self.root):
            locks.mkdir(parents=True, exist_ok=True)
        with (locks / recipe.key).open("a+") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            with _store_errors(self.root):
                # Said for whoever finds the workspace of a dead process.
                handle.truncate(0)
                handle.write(f"process {os.getpid()} on {platform.node()}")
                handle.flush()
            # Whoever worked on this key before and is gone was killed.
            for workspace in (self.root / ".staging").glob(f"{recipe.key}.*"):
                shutil.rmtree(workspace, ignore_errors=True)
            yield

    @contextmanager
    def workspace(self, recipe: Recipe) -> Iterator[Path]:
        """A private folder on the store's file system; gone afterwards unless committed."""
        folder = self.root / ".staging" / f"{recipe.key}.{uuid.uuid4().hex}"
        with _store_errors(self.root):
            folder.mkdir(parents=True)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def partial(self, recipe: Recipe) -> Path:
        """A folder where a long phase keeps finished pieces of this very recipe until it commits. Needs `exclusive`."""
        folder = self.root / ".partial" / recipe.key
        with _store_errors(self.root):
            folder.mkdir(parents=True, exist_ok=True)
        return folder

    def commit(self, recipe: Recipe, workspace: Path, outcome: Outcome, *, seconds: float) -> ArtifactRef:
        """Write the tables into the workspace, then move the folder into place by one rename."""
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
        shutil.rmtree(self.root / ".partial" / recipe.key, ignore_errors=True)
        return ref if won else self.manifest(ref).ref

    def _rename(self, source: Path, ref: ArtifactRef) -> bool:
        """Move a folder into place; False when the artifact was there already, by another process or pruned."""
        target = self.folder(ref.key)
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.is_symlink() or (target.exists() and not (target / MANIFEST).exists()):
            # No commit leaves this: somebody deleted the record, or put a link. It is kept, out of the way.
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
        """Move an artifact's folder into `damaged`; returns its new path."""
        aside = self.root / "damaged" / f"{folder.name}.{uuid.uuid4().hex[:8]}"
        aside.parent.mkdir(exist_ok=True)
        folder.rename(aside)
        for parent in (aside.parent, folder.parent):
            fsync(parent)
        return aside

    def sweep(self) -> None:
        """Remove the pieces of complete artifacts: a process was killed between its rename and this."""
        for folder in (self.root / ".partial").glob("*"):
            if (self.folder(folder.name) / MANIFEST).is_file():
                shutil.rmtree(folder, ignore_errors=True)

    def path(self, ref: ArtifactRef, name: str) -> Path:
        """A file of the artifact, its digest checked: see `verify.verified_paths`."""
        (path,) = verify.verified_paths(self.root, [(self.manifest(ref), name)])
        return path

    def verified_folder(self, ref: ArtifactRef) -> Path:
        """The artifact's folder with every file checked: for engines that load whole folders.

        Moments that gc removed may be missing: samplers need none, and a trainer refuses the folder by itself. The
        base model of an adapter is checked too.
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
        """The rows of one table, in the order they were committed."""
        # Imported here: arrow takes a tenth of a second, and most commands read no rows.
        from infuser_core.store import tables

        return tables.read_rows(self.path(ref, f"{table}.parquet"), row_type)

    def refs(self, start: str = "") -> list[ArtifactRef]:
        """Committed artifacts whose key or id begins with `start`, ordered by kind and key; reads no other's record."""
        key = start.partition("@")[0]
        paths = sorted((self.root / "artifacts").glob(f"*/{escape(key)}*/{MANIFEST}")) if "/" not in key else []
        return [ref for path in paths if (ref := read_record(path.parent).ref).id.startswith(start)]

    def ref(self, start: str) -> ArtifactRef | None:
        """The artifact whose key or id begins with `start`, if any. Raises UsageError for several."""
        refs = self.refs(start)
        if len(refs) > 1:
            raise UsageError(f"{len(refs)} artifacts start with {start}", hint=f"e.g. {refs[0].key} and {refs[1].key}")
        return refs[0] if refs else None


@contextmanager
def restoring(keys: Collection[str], *, stay: bool) -> Iterator[None]:
    """Within this process, pruned artifacts of these keys count as absent, so that stages compute them again.

    Retention leaves everything as it is meanwhile where they are to `stay`.
    """
    _restoring.update(dict.fromkeys(keys, stay))
    try:
        yield
    finally:
        for key in keys:
            del _restoring[key]


def is_repairing() -> bool:
    """Whether this process computes pruned artifacts again that are to stay."""
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
