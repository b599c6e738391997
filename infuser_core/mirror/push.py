"""From the store to a mirror: what is committed and not there yet, each artifact's commit record last."""

import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from hashlib import file_digest
from pathlib import Path
from typing import Any, TypeVar

from infuser_core import faults
from infuser_core.errors import DamagedArtifactError, StoreError, UsageError
from infuser_core.mirror import records
from infuser_core.mirror.inventory import There, commit_record, removed, there
from infuser_core.mirror.outcome import Copied, Outcome, Progress
from infuser_core.mirror.remote import Content, Remote
from infuser_core.store import pruned, runs, verify
from infuser_core.store.catalogue import Catalogue, with_inputs
from infuser_core.store.store import MANIFEST, Manifest

Job = TypeVar("Job")
WORKERS = 4
"""Artifacts copied at once: one waits for the network while another's digest is computed."""


def push(
    root: Path, url: str, run: str | None, *, quick: bool = False, progress: Progress = lambda done, total: None
) -> Outcome:
    """Copy a run, or the whole store, to a mirror; what is there already is not sent again.

    Every file is compared with its recorded digest before it goes, and read back afterwards; `quick` leaves the reading
    back out. Raises UsageError for an unknown run or address, StoreError where the mirror cannot be reached.
    """
    began = time.monotonic()
    if not (root / "artifacts").is_dir():
        raise UsageError(f"no store at {root}", hint="set INFUSER_STORE to the folder of a store")
    remote = Remote(url)
    names = [runs.find_run(root, run)] if run else runs.list_runs(root)
    # Before the artifacts are looked for: a record may only name what its journal knew.
    taken = [records.take(root, name) for name in names]
    catalogue = Catalogue(root)
    parts = {name: with_inputs(catalogue, records.keys(root, [name])) for name in names}
    keys = sorted(set().union(*parts.values()) if run else catalogue.records)
    found = there(remote)
    jobs = [
        _Job(remote, root / "artifacts" / catalogue.records[key].phase / key, found.get(key), quick=quick)
        for key in keys
    ]
    sizes = [catalogue.records[key].num_bytes for key in keys]
    copied = each(_Job.copy, jobs, sizes, progress)
    copied += [Copied(key=key, files=0, bytes=0, problem=why) for key, why in _damaged_here(catalogue, run)]
    failed = {done.key for done in copied if done.problem}
    done = [_record(remote, record, parts[record.run], failed) for record in taken]
    return Outcome(verb="pushed", url=remote.shown, artifacts=copied, records=done, seconds=time.monotonic() - began)


def each(work: Callable[[Job], Copied], jobs: Sequence[Job], sizes: Sequence[int], progress: Progress) -> list[Copied]:
    """Do the jobs, a few at once; the sizes, bytes, are for the progress alone."""
    total, done, outcomes = sum(sizes), 0, []
    with ThreadPoolExecutor(WORKERS) as pool:
        try:
            for size, outcome in zip(sizes, pool.map(work, jobs), strict=True):
                outcomes.append(outcome)
                done += size
                progress(done, total)
        finally:
            pool.shutdown(cancel_futures=True)  # after an error nothing new begins
    return outcomes


def _damaged_here(catalogue: Catalogue, run: str | None) -> list[tuple[str, str]]:
    return [] if run else sorted(catalogue.damaged.items())


def _record(remote: Remote, taken: records.Taken, keys: set[str], failed: set[str]) -> Copied:
    if keys & failed:
        problem = f"{len(keys & failed)} of its artifacts could not be copied: {sorted(keys & failed)[0]}"
        return Copied(key=taken.run, files=0, bytes=0, problem=problem)
    try:
        return records.put(remote, taken, keys)
    except DamagedArtifactError as error:
        return Copied(key=taken.run, files=0, bytes=0, problem=error.message)


class _Job:
    """One artifact on its way to the mirror."""

    def __init__(self, remote: Remote, folder: Path, found: There | None, *, quick: bool) -> None:
        self._remote = remote
        self._folder = folder
        self._copy = found or There(kind=folder.parent.name, key=folder.name, sizes={})
        self._quick = quick
        self._files = self._bytes = 0

    def copy(self) -> Copied:
        """Send what is missing. Damage on one side is the artifact's problem; an unreachable mirror ends everything."""
        try:
            problem = self._send()
        except DamagedArtifactError as error:
            problem = error.message
        return Copied(key=self._folder.name, files=self._files, bytes=self._bytes, problem=problem)

    def _send(self) -> str:
        manifest = verify.recorded(self._folder)
        if manifest is None:
            return f"its commit record is damaged; {_DOCTOR}"
        thin = pruned.read(self._folder)
        here = [name for name in manifest.files if not (name in thin and not (self._folder / name).exists())]
        known = commit_record(self._remote, self._copy)
        if known is None:
            self._send_new(manifest, here, thin)
            return ""
        if known[0].ref != manifest.ref:
            return f"{_OTHER} {known[0].ref.digest[:16]} there, {manifest.ref.digest[:16]} here"
        return self._complete(manifest, known[0], here)

    def _send_new(self, manifest: Manifest, here: Sequence[str], thin: dict[str, pruned.Removed]) -> None:
        for name in here:
            self._file(name, _facts(manifest, name))
        gone = [entry for name, entry in thin.items() if name not in here]
        if gone:
            self._remote.write(self._copy.path(pruned.FILE), _thinned(gone))
        faults.point("mirror:push")
        self._remote.put(self._folder / MANIFEST, self._copy.path(MANIFEST))
        self._files += 1

    def _complete(self, manifest: Manifest, known: Manifest, here: Sequence[str]) -> str:
        """Give a committed copy what it lacks: gc had thinned out the store that it came from, or it lost a file."""
        lost = [name for name in known.files if self._copy.sizes.get(name) != _facts(known, name).bytes]
        if not lost:
            return ""
        again = [name for name in lost if name in here and _facts(manifest, name) == _facts(known, name)]
        for name in again:
            self._file(name, _facts(known, name))
        thin = removed(self._remote, self._copy)
        wanting = sorted(set(lost) - set(again) - set(thin))
        if set(again) & set(thin):
            still = [entry for name, entry in thin.items() if name not in again]
            self._remote.write(self._copy.path(pruned.FILE), _thinned(still))
        return f"the mirror has lost {wanting[0]}, which this store cannot give back" if wanting else ""

    def _file(self, name: str, expected: Content) -> None:
        path = self._folder / name
        _refuse_changed(path, expected)
        place = self._copy.path(name)
        # What a killed push left is as good as sent when it reads right.
        if not self._quick and self._copy.sizes.get(name) == expected.bytes and self._reads(place, expected):
            return
        self._remote.put(path, place)
        self._files += 1
        self._bytes += expected.bytes
        faults.point("mirror:push:file")
        if not self._quick and not self._reads(place, expected):
            raise StoreError(
                f"the mirror {self._remote.shown} gave back other bytes of {place} than were sent",
                hint="try again; if it stays so, the mirror cannot be trusted",
            )

    def _reads(self, place: str, expected: Content) -> bool:
        return self._remote.content(place) == expected


_DOCTOR = "`infuser doctor` looks closer"
_OTHER = "the mirror holds another result of the same recipe, made on another machine or by another engine: digest"


def _facts(manifest: Manifest, name: str) -> Content:
    facts: dict[str, Any] = dict(manifest.files[name])
    return Content(sha256=facts["sha256"], bytes=facts["bytes"])


def _refuse_changed(path: Path, expected: Content) -> None:
    try:
        with path.open("rb") as handle:
            found = Content(sha256=file_digest(handle, "sha256").hexdigest(), bytes=path.stat().st_size)
    except OSError as error:
        raise DamagedArtifactError(f"cannot read {path}: {error.strerror or error}", hint=_DOCTOR) from error
    if found != expected:
        raise DamagedArtifactError(f"{path} changed since it was written; {_DOCTOR}", hint="`infuser repair`")


def _thinned(entries: Sequence[pruned.Removed]) -> bytes:
    value = {"format": pruned.FORMAT, "removed": [asdict(entry) for entry in entries]}
    return (json.dumps(value, indent=1, sort_keys=True) + "\n").encode()
