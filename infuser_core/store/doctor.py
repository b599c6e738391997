"""`infuser doctor` and the first half of `infuser repair`: check the store, move damaged artifacts aside."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from infuser_core.errors import UsageError
from infuser_core.store import lease, pruned, runs, verify
from infuser_core.store.catalogue import (
    CHECKPOINTS,
    END,
    FILE,
    FORMAT,
    Catalogue,
    Holder,
    Record,
    checkpoints,
    holders,
    with_inputs,
)
from infuser_core.store.leftovers import Leftover, leftovers
from infuser_core.store.store import Store
from infuser_core.store.verify import Health, Problem, Progress, size

_KINDS = {"staging": "workspace of a stage", "pieces": "finished pieces", "draft": "temporary file"}


def examine(root: Path, run: str | None = None, *, progress: Progress = lambda done, total: None) -> Health:
    """Look at everything that a run consists of, or at the whole store. Changes nothing that counts.

    Raises UsageError when there is no such run.
    """
    started = time.monotonic()
    sight = _Sight(root, run)
    folders = sorted(sight.folders)
    checked = verify.check(folders, progress)
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
            manifest = verify.recorded(folder) if record and folder.name not in unread else None
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


_SAMPLING = ("rollout_dev", "generate_questions", "rollout_questions", "respond")
"""Phases that need a checkpoint's weights alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Aside:
    """A damaged artifact that was moved away."""

    key: str
    """Its key."""
    path: Path
    """Where it lies now."""
    why: str
    """The first thing that was wrong with it."""

    @property
    def line(self) -> str:
        """For people."""
        return f"set aside {self.key}: {self.why}; it lies in {self.path}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A store in which what is damaged is missing instead."""

    health: Health
    """What was found before."""
    aside: Sequence[Aside]
    """What was moved away."""
    lost: dict[str, str]
    """Digest by key of everything that has to be computed again; empty text where it is unknown."""
    restore: Sequence[str]
    """Keys of pruned checkpoints that computing the lost ones needs, and that are computed again first."""
    runs: Sequence[str]
    """Runs that miss something."""


def prepare(root: Path, run: str | None, *, progress: Progress = lambda done, total: None) -> Prepared:
    """Look at a run, or at the whole store, and move every damaged artifact aside. Nothing is deleted.

    Raises BusyRunError when a living process executes a run that holds something damaged, UsageError when there is no
    such run.
    """
    for name in [run] if run else []:
        runs.refuse_held(root, runs.find_run(root, name))
    health = examine(root, run, progress=progress)
    affected = sorted({name for problem in health.damage for name in problem.runs if problem.kind != "run_record"})
    with ExitStack() as held:
        for name in affected:
            held.enter_context(runs.holding(root, name))
        lost = _lost(root, health, affected)
        needed = restoration(Catalogue(root), root, lost, _places(root, lost))
        aside = _move(root, health.damage)
        rebuild_index(root)
    missing = {problem.key for problem in health.damage if problem.key}
    return Prepared(
        health=health,
        aside=aside,
        lost=lost,
        restore=needed,
        runs=[holder.name for holder in holders(root) if holder.name in affected and holder.keys & missing],
    )


def _move(root: Path, damage: Iterable[Problem]) -> list[Aside]:
    store, moved = Store(root), dict[str, Aside]()
    for problem in damage:
        folder = store.folder(problem.key.rpartition("-")[0], problem.key)
        movable = problem.kind.startswith(("file_", "record_"))
        if movable and problem.key not in moved and folder.is_dir():
            moved[problem.key] = Aside(key=problem.key, path=store.put_aside(folder), why=problem.what)
    return list(moved.values())


def _lost(root: Path, health: Health, names: Sequence[str]) -> dict[str, str]:
    """Damaged and missing artifacts with the digests that journals remember."""
    entries = {entry.key: entry.digest for holder in holders(root) if holder.name in names for entry in holder.entries}
    keys = {
        problem.key for problem in health.damage if problem.key and problem.kind not in ("input_missing", "index_wrong")
    }
    return {key: entries.get(key, "") for key in sorted(keys)}


def _places(root: Path, keys: Iterable[str]) -> dict[str, int]:
    """The iteration of each key, by the journals."""
    wanted = set(keys)
    return {entry.key: entry.iteration for holder in holders(root) for entry in holder.entries if entry.key in wanted}


def rebuild_index(root: Path) -> None:
    """Forget the index and read every commit record again. It may be missing at any time, so this is safe."""
    (root / FILE).unlink(missing_ok=True)
    Catalogue(root)


def restoration(
    catalogue: Catalogue, root: Path, keys: Iterable[str], places: dict[str, int] | None = None
) -> list[str]:
    """Pruned checkpoints that must be whole before these keys can be computed, back to the last whole ones.

    A key whose record is lost may need any checkpoint of its iteration.
    """
    found: dict[str, None] = {}
    ahead = [(key, record) for key in keys for record in _needed_by(catalogue, key, (places or {}).get(key, -1))]
    while ahead:
        user, record = ahead.pop()
        removed = pruned.read(Store(root).folder(record.phase, record.key))
        sampled = user.rpartition("-")[0] in _SAMPLING
        if record.key in found or not any(part.part == pruned.WEIGHTS or not sampled for part in removed.values()):
            continue
        found[record.key] = None
        ahead += [(record.key, each) for each in _inputs(catalogue, record)]
    return list(found)


def _inputs(catalogue: Catalogue, record: Record) -> list[Record]:
    known = [catalogue.by_id.get(identity) for identity in record.inputs.values()]
    return [each for each in known if each is not None and each.phase in CHECKPOINTS]


def _needed_by(catalogue: Catalogue, key: str, iteration: int) -> list[Record]:
    record = catalogue.records.get(key)
    if record is not None:
        return _inputs(catalogue, record)
    return [
        each for each in catalogue.records.values() if each.phase in CHECKPOINTS and each.iteration + 1 == iteration
    ]


def pruned_at(root: Path, run: str, iteration: int) -> list[str]:
    """Keys to restore so that both roles' checkpoints after so many iterations are whole again; empty if they are.

    Raises UsageError when the run has no such checkpoint.
    """
    catalogue = Catalogue(root)
    (holder,) = [each for each in holders(root) if each.name == run]
    chosen = checkpoints_at(catalogue, holder, iteration)
    store = Store(root)
    thin = [record for record in chosen if pruned.read(store.folder(record.phase, record.key))]
    wanted = [record.key for record in thin]
    return [*wanted, *(key for key in restoration(catalogue, root, wanted) if key not in wanted)]


def checkpoints_at(catalogue: Catalogue, holder: Holder, iteration: int) -> list[Record]:
    """The run's checkpoints after so many iterations. Raises UsageError when it has none there."""
    known = checkpoints(catalogue, holder)
    found = [record for number, record in known if number == iteration]
    if not found:
        numbers = sorted({number for number, _ in known})
        hint = f"it has them after {numbers[0]} to {numbers[-1]}" if numbers else "it has none yet"
        raise UsageError(f"run {holder.name} has no checkpoint after {iteration} iterations", hint=hint)
    return found


def last_place(holder: Holder) -> str:
    """Where an unfinished run had got to, PHASE@ITERATION; empty where it had got nowhere."""
    worked = [entry for entry in holder.entries if entry.state == "ran"] or list(holder.entries)
    newest = max(worked, key=lambda entry: entry.attempt, default=None)
    if newest is None:
        return ""
    last = [entry for entry in worked if entry.attempt == newest.attempt][-1]
    return last.phase if last.iteration < 0 else f"{last.phase}@{last.iteration}"


def describe(root: Path, prepared: Prepared, ended: Sequence[str], restored: Sequence[str]) -> str:
    """What was computed, for people, after the runs in `ended` have gone over what they hold."""
    catalogue = Catalogue(root)
    lines = [_fate(catalogue.records.get(key), key, digest) for key, digest in prepared.lost.items()]
    lines += [f"restored {key}: the same digest" for key in dict.fromkeys([*prepared.restore, *restored])]
    for name in ended:
        ran = [entry for entry in runs.Journal(root, name).last_attempt() if entry.state == "ran"]
        lines.append(f"run {name}: {len(ran)} stages ran, all others were kept")
    return "\n".join(lines or ["nothing is damaged or pruned there; the index was built anew"])


def _fate(record: Record | None, key: str, digest: str) -> str:
    if record is None:
        return f"not computed {key}: no run needs it"
    if not digest:
        return f"computed again {key}: no journal knew its digest"
    changed = "another digest, so what was made from it ran again"
    return f"computed again {key}: {'the same digest' if record.digest == digest else changed}"
