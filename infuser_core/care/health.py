"""`infuser doctor`: digests, references, records, the index and leftovers of a run or of the whole store."""

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from infuser_core import lease, runs
from infuser_core.care import digests
from infuser_core.care.digests import Progress
from infuser_core.care.holders import Holder, holders, with_inputs
from infuser_core.care.litter import Leftover, leftovers
from infuser_core.care.problem import Health, Problem, size
from infuser_core.errors import UsageError
from infuser_core.lineage.index import END, FILE, FORMAT, Catalogue

_KINDS = {"staging": "workspace of a stage", "pieces": "finished pieces", "draft": "temporary file"}


def examine(root: Path, run: str | None = None, *, progress: Progress = lambda done, total: None) -> Health:
    """Look at everything that a run consists of, or at the whole store. Changes nothing that counts.

    Raises UsageError when there is no such run.
    """
    started = time.monotonic()
    sight = _Sight(root, run)
    folders = sorted(sight.folders)
    checked = digests.check(folders, progress)
    damaged = {problem.key for problem in checked.problems if problem.damage}
    problems = [
        *checked.problems,
        *sight.orphans(damaged),
        *sight.missing(),
        *sight.records(),
        *sight.index(damaged),
        *sight.left(),
    ]
    named = [sight.with_runs(problem) for problem in problems]
    return Health(
        scope=f"run {run}" if run else "store",
        artifacts=len(folders),
        files=checked.files,
        bytes=checked.bytes,
        pruned=checked.pruned,
        seconds=time.monotonic() - started,
        problems=sorted(named, key=lambda problem: not problem.damage),
    )


class _Sight:
    """A store, or the part of it that one run consists of."""

    def __init__(self, root: Path, run: str | None) -> None:
        self._root, self._run = root, run
        self._catalogue = Catalogue(root)
        self._all = holders(root)
        self._holders = [holder for holder in self._all if run in (None, holder.name)]
        if run is not None and not self._holders:
            raise UsageError(f"no run named {run} in {root}", hint="`infuser runs` lists them")

    @cached_property
    def _keys(self) -> set[str]:
        """Keys that the runs in sight hold, with what they were made from."""
        return {key for holder in self._holders for key in {*holder.keys, *with_inputs(self._catalogue, holder.keys)}}

    @cached_property
    def folders(self) -> list[Path]:
        """Folders of the artifacts in sight."""
        there = [path for path in (self._root / "artifacts").glob("*/*") if path.is_dir()]
        return there if self._run is None else [path for path in there if path.name in self._keys]

    @cached_property
    def _runs_of(self) -> Mapping[str, tuple[str, ...]]:
        found: dict[str, list[str]] = {}
        for holder in self._all:
            for key in {*holder.keys, *with_inputs(self._catalogue, holder.keys)}:
                found.setdefault(key, []).append(holder.name)
        return {key: tuple(names) for key, names in found.items()}

    def with_runs(self, problem: Problem) -> Problem:
        """The problem with the runs that hold its artifact, and the remedy for them."""
        names = problem.runs or self._runs_of.get(problem.key, ())
        if problem.remedy or not problem.damage:
            return replace(problem, runs=names)
        chosen = self._run if self._run in names else next(iter(names), None)
        command = f"infuser repair {chosen}" if chosen else "infuser repair"
        return replace(problem, runs=names, remedy=f"`{command}` moves it aside and computes what needs it again")

    def orphans(self, damaged: Iterable[str]) -> Iterator[Problem]:
        """Artifacts that were made from something that is gone."""
        unread = set(damaged)
        for folder in self.folders:
            record = self._catalogue.records.get(folder.name)
            for name, identity in record.inputs.items() if record and folder.name not in unread else ():
                if identity not in self._catalogue.by_id and identity.split("@")[0] not in unread:
                    held = folder.name in self._runs_of
                    yield Problem(
                        kind="input_missing",
                        damage=held,
                        key=folder.name,
                        what=f"{folder.name} was made from {name} {identity}, which is not in the store",
                        remedy="" if held else "no run holds it; `infuser gc` lists it",
                    )

    def missing(self) -> Iterator[Problem]:
        """Artifacts that a journal names and the store has not, or has with another digest."""
        there = {path.name for path in self.folders}
        for holder in self._holders:
            for entry in holder.entries:
                record = self._catalogue.records.get(entry.key)
                if record is not None and record.digest != entry.digest:
                    what = f"run {holder.name} holds {entry.key}@{entry.digest[:16]}; the store has {record.id}"
                    yield self._lost(holder, entry.key, "artifact_replaced", what)
                elif entry.key not in there:
                    what = f"run {holder.name} holds {entry.key}, which is not in the store"
                    yield self._lost(holder, entry.key, "artifact_missing", what)

    def _lost(self, holder: Holder, key: str, kind: str, what: str) -> Problem:
        remedy = "`infuser repair` computes it again" if holder.finished else "`infuser resume` computes it again"
        command = remedy.replace("repair", f"repair {holder.name}").replace("resume", f"resume {holder.name}")
        return Problem(kind=kind, damage=holder.finished, key=key, what=what, remedy=command, runs=(holder.name,))

    def records(self) -> Iterator[Problem]:
        """Records of the runs themselves."""
        for holder in self._holders:
            if holder.broken:
                remedy = (
                    f"start it again with its configuration files and --name {holder.name}: nothing is computed twice"
                )
                what, names = f"run {holder.name}: {holder.broken}", (holder.name,)
                yield Problem(kind="run_record", damage=True, what=what, remedy=remedy, runs=names)
            for line in holder.torn:
                yield Problem(
                    kind="journal_torn",
                    damage=False,
                    what=f"run {holder.name}, {line} is torn and passed over; what it told of is in the store",
                    remedy="",
                    runs=(holder.name,),
                )
            dead = lease.dead_holder(runs.runs_folder(self._root) / holder.name)
            if dead is not None:
                where = f" in {dead.doing}" if dead.doing else ""
                what = f"run {holder.name}: {dead.holder}, is gone without giving the run back{where}"
                remedy = f"`infuser resume {holder.name}` goes on"
                yield Problem(kind="dead_holder", damage=False, what=what, remedy=remedy, runs=(holder.name,))

    def index(self, damaged: Iterable[str]) -> Iterator[Problem]:
        """What the index says of an artifact must be what its commit record says."""
        unread = set(damaged)
        for folder in self.folders:
            record = self._catalogue.records.get(folder.name)
            manifest = digests.recorded(folder) if record and folder.name not in unread else None
            if record is None or manifest is None:
                continue
            wanted = (manifest.ref.digest, manifest.recipe["inputs"], manifest.rows, manifest.recipe["iteration"])
            if wanted != (record.digest, record.inputs, record.rows, record.iteration):
                what = f"the index says something else of {folder.name} than its commit record"
                remedy = "`infuser repair` builds the index anew"
                yield Problem(kind="index_wrong", damage=True, what=what, remedy=remedy, key=folder.name)
        torn = _torn_lines(self._root / FILE)
        if torn and self._run is None:
            what = f"{torn} torn lines in {self._root / FILE} are passed over"
            yield Problem(kind="index_torn", damage=False, what=what, remedy="`infuser repair` builds the index anew")

    def left(self) -> Iterator[Problem]:
        """Leftovers; of a run, those of its own keys and folder."""
        own = runs.runs_folder(self._root) / self._run if self._run else None
        for left in leftovers(self._root, held=frozenset(self._runs_of)):
            name = left.path.name.partition(".")[0]
            if own is None or left.path.parent == own or name in self._keys:
                yield _note(left)


def _note(left: Leftover) -> Problem:
    what = _KINDS.get(left.kind, f"what was moved to {left.path.parent.name}")
    whose = f"left by {left.owner}, which is gone" if left.kind in _KINDS and not left.needed else f"of {left.owner}"
    remedy = f"stays: {left.needed}" if left.needed else "`infuser gc --apply` removes it"
    line = f"{left.path}: {what}, {size(left.bytes)}, {whose}"
    return Problem(kind=left.kind, damage=False, what=line, remedy=remedy, bytes=left.bytes)


def _torn_lines(path: Path) -> int:
    if not path.is_file():
        return 0
    lines = [line.split(b"\t") for line in path.read_bytes().split(b"\n") if line.strip()]
    marks = (FORMAT.encode(), END.encode())
    return sum(len(line) != 8 or (line[0], line[-1]) != marks for line in lines)
