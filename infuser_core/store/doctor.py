"""`infuser doctor`: check the store and, as the first half of a repair, move damaged artifacts aside."""

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from infuser_core.config.phase_table import CHECKPOINTS, FACTS, GRADIENTS
from infuser_core.store import lease, pruned, runs, verify
from infuser_core.store.catalogue import (
    Catalogue,
    Holder,
    checkpoints_at,
    evaluations,
    gradients,
    held_keys,
    holder_of,
    holders,
    thinned,
)
from infuser_core.store.gc import leftovers
from infuser_core.store.journal import ASIDE, Journal
from infuser_core.store.recipe import Record, artifact_folder
from infuser_core.store.store import Store
from infuser_core.store.verify import Health, Problem, Progress, size

_KINDS = {"staging": "workspace of a stage", "pieces": "finished pieces", "draft": "temporary file"}
_AGAIN = "run the same `infuser eval` (or `report quality`) again: what is in the store is kept"
_STUDY = "run its study or corpus build again; or remove the file, and gc may take what it alone told of"


def examine(root: Path, run: str | None = None, *, progress: Progress = lambda done, total: None) -> Health:
    """Look at everything that a run consists of, or at the whole store. Changes nothing that counts.

    Raises UsageError when there is no such run.
    """
    started = time.monotonic()
    scope = _Scope(root, run)
    found, counts = verify.check(scope.folders, progress)
    damaged = {problem.key for problem in found if problem.damage}
    problems = [
        *found,
        *scope.inputs(damaged),
        *scope.journals(),
        *scope.records(),
        *scope.leftovers(),
    ]
    return Health(
        scope=f"run {run}" if run else "store",
        seconds=time.monotonic() - started,
        problems=sorted(map(scope.with_runs, problems), key=lambda problem: not problem.damage),
        **counts,
    )


class _Scope:
    """A store, or the part of it that one run consists of."""

    def __init__(self, root: Path, run: str | None) -> None:
        self._root, self._run = root, run
        self._catalogue = Catalogue(root)
        self._all = holders(root)
        self._holders = [holder for holder in self._all if run in (None, holder.name)]
        self._evaluations = [] if run else evaluations(root)
        if run is not None and not self._holders:
            runs.find_run(root, run)

    @cached_property
    def folders(self) -> list[Path]:
        """Folders of the artifacts in scope."""
        there = sorted(path for path in (self._root / "artifacts").glob("*/*") if path.is_dir() or path.is_symlink())
        return [path for path in there if self._run is None or self._run in self._runs_of.get(path.name, ())]

    @cached_property
    def _runs_of(self) -> Mapping[str, Sequence[str]]:
        """Runs that hold an artifact, or anything made from it, by its key."""
        found: dict[str, list[str]] = {}
        for holder in self._all:
            for key in held_keys(self._catalogue, holder):
                found.setdefault(key, []).append(holder.name)
        return found

    def with_runs(self, problem: Problem) -> Problem:
        """The problem with the runs that hold its artifact, and the remedy for them."""
        names = problem.runs or tuple(self._runs_of.get(problem.key, ()))
        if problem.remedy or not problem.damage:
            return replace(problem, runs=names)
        chosen = self._run if self._run in names else next(iter(names), None)
        command = f"infuser doctor {chosen} --repair" if chosen else "infuser doctor --repair"
        return replace(problem, runs=names, remedy=f"`{command}` moves it aside and computes what needs it again")

    def inputs(self, damaged: Collection[str]) -> Iterator[Problem]:
        """Artifacts that were made from something that is gone."""
        keys = [folder.name for folder in self.folders if folder.name not in damaged]
        for record in filter(None, map(self._catalogue.find, keys)):
            for name, identity in record.inputs.items():
                if not self._catalogue.of_id(identity) and identity.split("@")[0] not in damaged:
                    held = record.key in self._runs_of
                    yield Problem(
                        kind="input_missing",
                        damage=held,
                        key=record.key,
                        what=f"{record.key} was made from {name} {identity}, which is not in the store",
                        remedy="" if held else "no run holds it; `infuser gc` lists it",
                    )

    def journals(self) -> Iterator[Problem]:
        """Artifacts that a sound journal names and the store has not, or has with another digest."""
        there = {path.name for path in self.folders}
        for holder in [each for each in (*self._holders, *self._evaluations) if not each.broken]:
            command = f"infuser doctor {holder.name} --repair" if holder.finished else f"infuser resume {holder.name}"
            is_run = holder.shelf == runs.RUNS
            remedy = f"`{command}` computes it again" if is_run else _AGAIN
            for entry in holder.entries:
                record = self._catalogue.find(entry.key)
                what = f"{'run' if is_run else 'evaluation'} {holder.name} holds {entry.key}"
                if record is not None and record.digest != entry.digest:
                    kind, what = "artifact_replaced", f"{what}@{entry.digest[:16]}; the store has {record.id}"
                elif entry.key not in there:
                    kind, what = "artifact_missing", f"{what}, which is not in the store"
                else:
                    continue
                yield Problem(
                    kind=kind, damage=holder.finished, key=entry.key, what=what, remedy=remedy, runs=(holder.name,)
                )

    def records(self) -> Iterator[Problem]:
        """Records of the runs and evaluations themselves."""
        for holder in self._evaluations:
            yield from _unreadable(holder)
        for holder in self._holders:
            names, name = (holder.name,), holder.name
            yield from _unreadable(holder)
            for line in holder.torn:
                what = f"run {name}, {line} is torn and passed over; what it told of is in the store"
                yield Problem(kind="journal_torn", damage=False, what=what, runs=names)
            dead = lease.dead_holder(runs.runs_folder(self._root) / name)
            if dead is not None:
                where = f" in {dead.doing}" if dead.doing else ""
                what = f"run {name}: {dead.holder}, is gone without giving the run back{where}"
                remedy = f"`infuser resume {name}` goes on"
                yield Problem(kind="dead_holder", damage=False, what=what, remedy=remedy, runs=names)

    def leftovers(self) -> Iterator[Problem]:
        """Leftovers; of a run, those of its own keys and folder."""
        own = runs.runs_folder(self._root) / self._run if self._run else None
        held = frozenset(self._runs_of).union(*(held_keys(self._catalogue, each) for each in self._evaluations))
        for left in leftovers(self._root, held=held):
            key = left.path.name.partition(".")[0]
            if own is None or left.path.parent == own or self._run in self._runs_of.get(key, ()):
                what = _KINDS.get(left.kind, f"what was moved to {left.path.parent.name}")
                gone = left.kind in _KINDS and not left.needed
                whose = f"left by {left.owner}, which is gone" if gone else f"of {left.owner}"
                line = f"{left.path}: {what}, {size(left.bytes)}, {whose}"
                remedy = f"stays: {left.needed}" if left.needed else "`infuser gc --apply` removes it"
                yield Problem(kind=left.kind, damage=False, what=line, remedy=remedy, bytes=left.bytes)


def _unreadable(holder: Holder) -> Iterator[Problem]:
    """Records of a run or an evaluation that are lost, or damaged and can be made anew."""
    again = f"start it again with its configuration files and --name {holder.name}: nothing is computed twice"
    if holder.shelf == runs.EVALUATIONS:
        again = _AGAIN
    if holder.lost:
        remedy = again
        if holder.shelf == runs.RUNS and runs.RECORD not in holder.lost:
            # What was begun and has no journal goes on by itself: all it made is found by its key.
            remedy = f"`infuser resume {holder.name}` goes on"
        what = f"{holder.folder}: {holder.lost}"
        yield Problem(kind="record_lost", damage=True, lost=True, what=what, remedy=remedy, runs=(holder.name,))
    for file, what in holder.damaged.items():
        renewed = holder.shelf == runs.RUNS and (file == runs.ATTEMPT or file.startswith("journal."))
        remedy = f"`infuser doctor {holder.name} --repair` makes it anew from what the store holds"
        if not renewed:
            remedy = f"`infuser doctor --repair`, then {again if holder.shelf == runs.EVALUATIONS else _STUDY}"
        yield Problem(
            kind="journal_damaged", damage=True, lost=not renewed, what=what, remedy=remedy, runs=(holder.name,)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A store in which what is damaged is missing instead."""

    aside: Sequence[str]
    """Damaged artifacts and records that were moved away, each with the first thing wrong with it and its new place."""
    lost: Mapping[str, str]
    """Digest by key of everything that has to be computed again; empty text where it is unknown."""
    restore: Sequence[str]
    """Keys of pruned checkpoints that computing the lost ones needs, and that are computed again first."""
    runs: Sequence[str]
    """Runs that miss something."""


def prepare(root: Path, run: str | None, *, progress: Progress = lambda done, total: None) -> Prepared:
    """Move every damaged artifact of a run, or of the store, aside, unless a living process executes such a run.

    Raises BusyRunError when a living process executes a run that holds something damaged, UsageError when there is no
    such run.
    """
    if run:
        runs.refuse_held(root, runs.find_run(root, run))
    damage = examine(root, run, progress=progress).damage
    everybody = [*holders(root), *([] if run else evaluations(root))]
    affected = {name for problem in damage for name in problem.runs}
    with ExitStack() as held:
        for holder in [each for each in everybody if each.name in affected]:
            held.enter_context(runs.holding(root, holder.name, shelf=holder.shelf))
        aside = [each for holder in everybody if holder.name in affected for each in _renew(root, holder)]
        known = [entry for holder in holders(root) for entry in holder.entries]
        holding = [holder for holder in holders(root) if holder.name in affected]
        digests = {entry.key: entry.digest for holder in holding for entry in holder.entries}
        keys = {each.key for each in damage if each.key and each.kind != "input_missing"}
        places = {entry.key: entry.iteration for entry in known if entry.key in keys}
        needed = restoration(Catalogue(root), sorted(keys), places)
        aside += _move(root, damage)
    missing = {problem.key for problem in damage if problem.key}
    return Prepared(
        aside=aside,
        lost={key: digests.get(key, "") for key in sorted(keys)},
        restore=needed,
        runs=[each.name for each in holding if each.keys & missing or (each.damaged and (each.keys or each.finished))],
    )


def _aside(name: str, path: Path, why: str) -> str:
    return f"set aside {name}: {why}; it lies in {path}"


def _renew(root: Path, holder: Holder) -> Iterator[str]:
    """Move damaged records out of the way: what they told is found again by the commands that wrote them."""
    store, folder = Store(root), root / holder.folder
    for file, why in holder.damaged.items():
        if file == runs.ATTEMPT:
            if (folder / file).exists():
                yield _aside(file, store.put_aside(folder / file), why)
        elif not file.endswith(ASIDE):
            yield _aside(file, Journal(root, holder.name, file=file, shelf=holder.shelf).set_aside(), why)
    for record in (runs.RECORD, runs.EVALUATION):
        if record in holder.lost and (folder / record).exists():
            yield _aside(record, store.put_aside(folder / record), holder.lost)


def end_repair(root: Path, names: Collection[str]) -> None:
    """Move damaged journals away whose runs, just repaired, have sound ones that tell the same; of others, none."""
    for holder in [*holders(root), *evaluations(root)]:
        repaired = holder.name in names if holder.shelf == runs.RUNS else holder.ended
        for file in [file for file in holder.damaged if file.endswith(ASIDE)]:
            stem = file.partition(".")[0]
            journal = Journal(root, holder.name, file=f"{stem}.jsonl", shelf=holder.shelf)
            if not journal.look().damage and ((repaired and stem == "journal") or journal.is_finished()):
                for path in (root / holder.folder).glob(f"{file.removesuffix('.jsonl')}.*"):
                    Store(root).put_aside(path)


def _move(root: Path, damage: Iterable[Problem]) -> list[str]:
    store, moved = Store(root), dict[str, str]()
    # A run's own record has no key: the folder of none would be that of all artifacts.
    for problem in [each for each in damage if each.key and each.kind.startswith(("file_", "record_"))]:
        folder = artifact_folder(root, problem.key)
        if problem.key not in moved and (folder.is_dir() or folder.is_symlink()):
            moved[problem.key] = _aside(problem.key, store.put_aside(folder), problem.what)
    return list(moved.values())


def restoration(catalogue: Catalogue, keys: Iterable[str], places: Mapping[str, int] | None = None) -> list[str]:
    """Pruned artifacts that must be whole before these keys can be computed, back to the last whole checkpoints.

    A key whose record is lost may need any checkpoint of its iteration, which `places` says.
    """
    found: dict[str, None] = {}
    ahead = [(key, record) for key in keys for record in _needed_by(catalogue, key, (places or {}).get(key, -1))]
    while ahead:
        user, record = ahead.pop()
        removed = pruned.read(artifact_folder(catalogue.root, record.key))
        phase = user.rpartition("-")[0]
        parts = {entry.part for entry in removed.values()}
        # A phase that this version does not know may read anything.
        reads = FACTS[phase].reads if phase in FACTS else tuple(pruned.PARTS)
        if record.key in found or not parts.intersection(reads):
            continue
        found[record.key] = None
        ahead += [(record.key, each) for each in _needed_by(catalogue, record.key, -1)]
    return list(found)


def _needed_by(catalogue: Catalogue, key: str, iteration: int) -> list[Record]:
    """The checkpoints and gradients that an artifact was made from."""
    record = catalogue.find(key)
    if record is None:
        known = catalogue.records.values()
        behind = [each for each in known if each.phase in CHECKPOINTS and each.iteration + 1 == iteration]
        return behind + [each for each in known if each.phase in GRADIENTS and each.iteration == iteration]
    sources = filter(None, map(catalogue.of_id, record.inputs.values()))
    return [each for each in sources if each.phase in (*CHECKPOINTS, *GRADIENTS)]


def pruned_at(root: Path, run: str, iteration: int) -> list[str]:
    """Keys to restore so that both roles' checkpoints, and the gradients of the iteration they begin, are whole.

    Raises UsageError when the run has no such checkpoint.
    """
    catalogue = Catalogue(root)
    holder = holder_of(root, run)
    begun = [record for record in gradients(catalogue, holder) if record.iteration == iteration]
    return restored_with(root, thinned(catalogue, [*checkpoints_at(catalogue, holder, iteration), *begun]))


def restored_with(root: Path, wanted: Sequence[str]) -> list[str]:
    """These keys of pruned artifacts and of those that must be whole before them."""
    return list(dict.fromkeys([*wanted, *restoration(Catalogue(root), wanted)]))


def last_place(holder: Holder) -> str:
    """Last stage of an unfinished run, PHASE@ITERATION; empty before the first."""
    worked = [entry for entry in holder.entries if entry.state == "ran"] or list(holder.entries)
    newest = max((entry.attempt for entry in worked), default=0)
    last = next((entry for entry in reversed(worked) if entry.attempt == newest), None)
    if last is None:
        return ""
    return last.phase if last.iteration < 0 else f"{last.phase}@{last.iteration}"


def describe(root: Path, prepared: Prepared, ended: Sequence[str], restored: Sequence[str]) -> str:
    """Summary of what was computed, after the runs in `ended` have gone over what they hold."""
    catalogue = Catalogue(root)
    lines = []
    for key, digest in prepared.lost.items():
        record = catalogue.find(key)
        if record is None:
            lines.append(f"not computed {key}: no run needs it")
            continue
        changed = "another digest, so what was made from it ran again"
        told = "the same digest" if record.digest == digest else changed
        lines.append(f"computed again {key}: {told if digest else 'no journal knew its digest'}")
    lines += [f"restored {key}: the same digest" for key in dict.fromkeys([*prepared.restore, *restored])]
    for name in ended:
        ran = [entry for entry in Journal(root, name).last_attempt() if entry.state == "ran"]
        lines.append(f"run {name}: {len(ran)} stages ran, all others were kept")
    if not lines and prepared.aside:
        lines = ["no run computes these again: `infuser doctor` says what remains to be done"]
    return "\n".join(lines or ["nothing is damaged or pruned there"])
