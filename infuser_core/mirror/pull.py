"""From a mirror into the store: every digest is verified, and an artifact appears by one rename."""

import errno
import fcntl
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import file_digest
from pathlib import Path
from typing import Any

from infuser_core import faults
from infuser_core.durable import fsync
from infuser_core.errors import DamagedArtifactError, StoreError, UsageError
from infuser_core.mirror import records
from infuser_core.mirror.inventory import There, commit_record, removed, there
from infuser_core.mirror.outcome import Copied, Outcome, Progress
from infuser_core.mirror.push import each
from infuser_core.mirror.remote import Remote
from infuser_core.store import pruned, runs
from infuser_core.store.recipe import Recipe
from infuser_core.store.store import MANIFEST, Manifest, Store, read_manifest

PIECES = Path(".partial") / "mirror"


def pull(
    root: Path, url: str, run: str | None, *, whole: bool = False, progress: Progress = lambda done, total: None
) -> Outcome:
    """Copy a run, or everything that is complete in a mirror, into the store; what is there is not fetched again.

    With `whole`, files that gc removed here come back too. Raises UsageError for a run that the mirror does not have,
    StoreError where it cannot be reached, BusyRunError where somebody executes the run.
    """
    began = time.monotonic()
    remote = Remote(url)
    wanted = [_known(remote, name) for name in ([run] if run else records.listed(remote))]
    for record in wanted:
        runs.refuse_held(root, record.run)
    found = there(remote)
    keys = sorted({key for record in wanted for key in record.keys} if run else found)
    copies = [found.get(key, There(kind=key.rpartition("-")[0], key=key, sizes={})) for key in keys]
    with _no_sweep(root):
        jobs = [_Job(root, remote, copy, whole=whole) for copy in copies if copy.complete or run]
        copied = each(_Job.copy, jobs, [copy.bytes for copy in copies if copy.complete or run], progress)
        failed = {done.key for done in copied if done.problem}
        done = [_record(root, remote, record, failed) for record in wanted]
    with suppress(OSError):
        (root / PIECES).rmdir()
    return Outcome(verb="pulled", url=remote.shown, artifacts=copied, records=done, seconds=time.monotonic() - began)


def _known(remote: Remote, run: str) -> records.Mirrored:
    found = records.read(remote, run)
    if found is None:
        known = ", ".join(records.listed(remote)) or "none"
        raise UsageError(f"the mirror {remote.shown} has no run {run}", hint=f"its runs: {known}")
    return found


@contextmanager
def _no_sweep(root: Path) -> Iterator[None]:
    """Until a run's record is here, nobody holds what was fetched for it: gc must not begin."""
    path = root / "locks" / "gc"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as handle:
        fcntl.flock(handle, fcntl.LOCK_SH)
        yield


def _record(root: Path, remote: Remote, record: records.Mirrored, failed: set[str]) -> Copied:
    lacking = sorted(failed & set(record.keys))
    if lacking:
        problem = f"{len(lacking)} of its artifacts could not be fetched: {lacking[0]}"
        return Copied(key=record.run, files=0, bytes=0, problem=problem)
    try:
        with runs.holding(root, record.run):
            return records.bring(root, remote, record)
    except DamagedArtifactError as error:
        return Copied(key=record.run, files=0, bytes=0, problem=error.message)


class _Job:
    """One artifact on its way into the store."""

    def __init__(self, root: Path, remote: Remote, copy: There, *, whole: bool) -> None:
        self._store = Store(root)
        self._remote = remote
        self._copy = copy
        self._whole = whole
        self._folder = self._store.folder(copy.kind, copy.key)
        self._pieces = root / PIECES / copy.key
        self._files = self._bytes = 0

    def copy(self) -> Copied:
        """Fetch what is missing. Damage is the artifact's problem; an unreachable mirror ends everything."""
        try:
            problem = self._fetch()
        except DamagedArtifactError as error:
            problem = error.message
        return Copied(key=self._copy.key, files=self._files, bytes=self._bytes, problem=problem)

    def _fetch(self) -> str:
        here = (self._folder / MANIFEST).is_file()
        thin = pruned.read(self._folder) if here else {}
        known = commit_record(self._remote, self._copy)
        if known is None:
            return "" if here and not self._whole else "it is not complete in the mirror"
        if here and read_manifest(self._folder).ref != known[0].ref:
            return f"the store holds another result of the same recipe, digest {known[0].ref.digest[:16]} there"
        if here and not (thin and self._whole):
            return ""
        with self._store.exclusive(Recipe(**known[0].recipe)):
            if here:
                self._bring_back(known[0], thin)
            else:
                self._bring(*known)
        return ""

    def _bring(self, manifest: Manifest, text: bytes) -> None:
        thin = removed(self._remote, self._copy)
        names = [name for name in manifest.files if name not in thin]
        self._get(manifest, names)
        for path in self._pieces.rglob("*"):
            if path.is_file() and path.relative_to(self._pieces).as_posix() not in names:
                path.unlink()
        if thin:
            pruned.write(self._pieces, list(thin.values()))
        (self._pieces / MANIFEST).write_bytes(text)
        for path in [*self._pieces.rglob("*"), self._pieces]:
            fsync(path)
        faults.point("mirror:pull")
        self._place()

    def _bring_back(self, manifest: Manifest, thin: dict[str, pruned.Removed]) -> None:
        """What gc removed here, fetched from the mirror instead of computed again."""
        gone = [name for name in thin if name in self._copy.sizes]
        if len(gone) < len(thin):
            raise DamagedArtifactError("the mirror lacks what gc removed here", hint="`infuser repair` computes it")
        self._get(manifest, gone)
        pruned.restore(self._pieces, self._folder)
        shutil.rmtree(self._pieces)

    def _get(self, manifest: Manifest, names: Sequence[str]) -> None:
        self._pieces.mkdir(parents=True, exist_ok=True)
        for name in names:
            expected: dict[str, Any] = dict(manifest.files[name])
            target = self._pieces / name
            if _content(target) == expected:
                continue  # a killed pull had it already
            target.parent.mkdir(parents=True, exist_ok=True)
            self._remote.get(self._copy.path(name), target)
            faults.point("mirror:pull:file")
            if _content(target) != expected:
                target.unlink()
                raise DamagedArtifactError(
                    f"{self._copy.path(name)} of the mirror does not match its recorded digest",
                    hint="`infuser mirror push` from a store that has it, after that file is moved aside there",
                )
            fsync(target)
            self._files += 1
            self._bytes += expected["bytes"]

    def _place(self) -> None:
        self._folder.parent.mkdir(parents=True, exist_ok=True)
        if self._folder.exists() and not (self._folder / MANIFEST).exists():
            self._store.put_aside(self._folder)
        try:
            self._pieces.rename(self._folder)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise StoreError(
                    f"cannot write {self._folder}: {error.strerror or error}",
                    hint="set INFUSER_STORE to a folder of yours",
                ) from error
            shutil.rmtree(self._pieces)  # somebody computed it meanwhile
        fsync(self._folder.parent)


def _content(path: Path) -> dict[str, Any] | None:
    """Digest and size as a commit record has them; None where there is no such file."""
    try:
        with path.open("rb") as handle:
            return {"sha256": file_digest(handle, "sha256").hexdigest(), "bytes": path.stat().st_size}
    except FileNotFoundError:
        return None
