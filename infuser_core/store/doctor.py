"""`infuser doctor`: check the store for damage, and prepare a repair by moving damaged artifacts and records aside.

To complete the repair, the affected runs are executed again, which computes the missing artifacts.
"""

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
    gradients_of,
    held_keys,
    holder_of,
    list_evaluations,
    list_holders,
    pruned_keys,
)
from infuser_core.store.gc import find_leftovers
from infuser_core.store.journal import ASIDE, Journal
from infuser_core.store.recipe import Record, artifact_folder
from infuser_core.store.store import Store
from infuser_core.store.verify import Health, Problem, Progress, format_size

_LEFTOVER_NAMES = {"staging": "workspace of a stage", "pieces": "finished pieces", "draft": "temporary file"}
_AGAIN = "run the same `infuser eval` (or `report quality`) again: what is in the store is kept"
_STUDY = "run its study or corpus build again; or remove the file, and gc may remove artifacts that only it lists"


def examine(root: Path, run: str | None = None, *, progress: Progress = lambda done, total: None) -> Health:
    """Check all artifacts and records of a run, or of the whole store; changes nothing.

    Raises UsageError if there is no such run.
    """
    started = time.monotonic()
    scope = _Scope(root, run)
    problems, counts = verify.check_artifacts(scope.folders, progress)
    damaged = {problem.key for problem in problems if problem.damage}
    problems += [
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
    """The checked part of a store: everything, or what belongs to one run."""

    def __init__(self, root: Path, run: str | None) -> None:
        self._root, self._run = root, run
        self._catalogue = Catalogue(root)
        self._all = list_holders(root)
        self._holders = [holder for holder in self._all if run in (None, holder.name)]
        self._evaluations = [] if run else list_evaluations(root)
        if run is not None and not self._holders:
            runs.find_run(root, run)

    @cached_property
    def folders(self) -> list[Path]:
        """Folders of the artifacts in scope."""
        folders = sorted(path for path in (self._root / "artifacts").glob("*/*") if path.is_dir() or path.is_symlink())
        return [path for path in folders if self._run is None or self._run in self._runs_of.get(path.name, ())]

    @cached_property
    def _runs_of(self) -> Mapping[str, Sequence[str]]:
        """Names of the runs that hold an artifact or anything computed from it, by the artifact's key."""
        names: dict[str, list[str]] = {}
        for holder in self._all:
            for key in held_keys(self._catalogue, holder):
                names.setdefault(key, []).append(holder.name)
        return names

    def with_runs(self, problem: Problem) -> Problem:
        """Add to a problem the runs that hold its artifact, and the command that repairs them."""
        names = problem.runs or tuple(self._runs_of.get(problem.key, ()))
        if problem.remedy or not problem.damage:
            return replace(problem, runs=names)
        run = self._run if self._run in names else next(iter(names), None)
        command = f"infuser doctor {run} --repair" if run else "infuser doctor --repair"
        return replace(problem, runs=names, remedy=f"`{command}` moves it aside and computes what needs it again")

    def inputs(self, damaged: Collection[str]) -> Iterator[Problem]:
        """Find artifacts with an input that is not in the store."""
        keys = [folder.name for folder in self.folders if folder.name not in damaged]
        for record in filter(None, map(self._catalogue.find, keys)):
            for name, identity in record.inputs.items():
                if not self._catalogue.find_by_id(identity) and identity.split("@")[0] not in damaged:
                    is_held = record.key in self._runs_of
                    yield Problem(
                        kind="input_missing",
                        damage=is_held,
                        key=record.key,
                        what=f"{record.key} was made from {name} {identity}, which is not in the store",
                        remedy="" if is_held else "no run holds it; `infuser gc` lists it",
                    )

    def journals(self) -> Iterator[Problem]:
        """Find artifacts listed in undamaged journals that the store lacks or has with another digest."""
        keys = {path.name for path in self.folders}
        for holder in [each for each in (*self._holders, *self._evaluations) if not each.broken]:
            command = f"doctor {holder.name} --repair" if holder.was_finished else f"resume {holder.name}"
            is_run = holder.shelf == runs.RUNS
            remedy = f"`infuser {command}` computes it again" if is_run else _AGAIN
            for entry in holder.entries:
                record = self._catalogue.find(entry.key)
                what = f"{'run' if is_run else 'evaluation'} {holder.name} holds {entry.key}"
                if record is not None and record.digest != entry.digest:
                    kind, what = "artifact_replaced", f"{what}@{entry.digest[:16]}; the store has {record.id}"
                elif entry.key not in keys:
                    kind, what = "artifact_missing", f"{what}, which is not in the store"
                else:
                    continue
                yield Problem(
                    kind=kind, damage=holder.was_finished, key=entry.key, what=what, remedy=remedy, runs=(holder.name,)
                )

    def records(self) -> Iterator[Problem]:
        """Find damaged records of runs and evaluations, incomplete journal lines, and runs whose process died."""
        for holder in self._evaluations:
            yield from _unreadable(holder)
        for holder in self._holders:
            names, name = (holder.name,), holder.name
            yield from _unreadable(holder)
            for line in holder.torn:
                what = f"run {name}, {line} is incomplete and skipped; its artifact is in the store"
                yield Problem(kind="journal_torn", damage=False, what=what, runs=names)
            dead = lease.find_dead_holder(runs.runs_folder(self._root) / name)
            if dead is not None:
                where = f" in {dead.doing}" if dead.doing else ""
                what = f"run {name}: {dead.holder}, died without releasing the run{where}"
                remedy = f"`infuser resume {name}` continues it"
                yield Problem(kind="dead_holder", damage=False, what=what, remedy=remedy, runs=names)

    def leftovers(self) -> Iterator[Problem]:
        """Report what `find_leftovers` finds; for one run, only what is of its artifacts or in its folder."""
        run_folder = runs.runs_folder(self._root) / self._run if self._run else None
        keys_in_use = frozenset(self._runs_of).union(*(held_keys(self._catalogue, each) for each in self._evaluations))
        for leftover in find_leftovers(self._root, keys_in_use=keys_in_use):
            key, kind = leftover.path.name.partition(".")[0], leftover.kind
            if run_folder is None or leftover.path.parent == run_folder or self._run in self._runs_of.get(key, ()):
                what = _LEFTOVER_NAMES.get(kind, f"what was moved to {leftover.path.parent.name}")
                is_abandoned = kind in _LEFTOVER_NAMES and not leftover.needed
                whose = f"left by {leftover.owner}, which is gone" if is_abandoned else f"of {leftover.owner}"
                line = f"{leftover.path}: {what}, {format_size(leftover.bytes)}, {whose}"
                remedy = f"stays: {leftover.needed}" if leftover.needed else "`infuser gc --apply` removes it"
                yield Problem(kind=kind, damage=False, what=line, remedy=remedy, bytes=leftover.bytes)


def _unreadable(holder: Holder) -> Iterator[Problem]:
    """Report lost and damaged records of a run or an evaluation."""
    again = f"start it again with its configuration files and --name {holder.name}: nothing is computed twice"
    if holder.shelf == runs.EVALUATIONS:
        again = _AGAIN
    if holder.unknown:
        remedy = again
        if holder.shelf == runs.RUNS and runs.RECORD not in holder.unknown:
            # With its record, a run can be resumed without a journal: it finds artifacts by their keys.
            remedy = f"`infuser resume {holder.name}` continues it"
        what = f"{holder.folder}: {holder.unknown}"
        yield Problem(kind="record_lost", damage=True, lost=True, what=what, remedy=remedy, runs=(holder.name,))
    for file, what in holder.damaged.items():
        is_recoverable = holder.shelf == runs.RUNS and (file == runs.ATTEMPT or file.startswith("journal."))
        remedy = f"`infuser doctor {holder.name} --repair` makes it anew from what the store holds"
        if not is_recoverable:
            remedy = f"`infuser doctor --repair`, then {again if holder.shelf == runs.EVALUATIONS else _STUDY}"
        yield Problem(
            kind="journal_damaged", damage=True, lost=not is_recoverable, what=what, remedy=remedy, runs=(holder.name,)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairPlan:
    """Remaining work of a repair after damaged artifacts and records were moved aside."""

    aside: Sequence[str]
    """Message for each damaged artifact or record that was moved: its first problem and its new path."""
    to_compute: Mapping[str, str]
    """Recorded digest by key of each artifact to compute again; empty text if unknown."""
    restore: Sequence[str]
    """Keys of pruned artifacts that must be restored before these can be computed."""
    runs: Sequence[str]
    """Names of the runs with missing artifacts or records."""


def prepare_repair(root: Path, run: str | None, *, progress: Progress = lambda done, total: None) -> RepairPlan:
    """Move all damaged artifacts and records of a run, or of the whole store, aside; returns the work that remains.

    Raises BusyRunError if a living process executes the run, or any run or evaluation with damage; UsageError if there
    is no such run.
    """
    if run:
        runs.refuse_if_held(root, runs.find_run(root, run))
    damage = examine(root, run, progress=progress).damage
    names = {name for problem in damage for name in problem.runs}
    affected = [each for each in [*list_holders(root), *([] if run else list_evaluations(root))] if each.name in names]
    with ExitStack() as locks:
        for holder in affected:
            locks.enter_context(runs.hold_run(root, holder.name, shelf=holder.shelf))
        aside = [message for holder in affected for message in _move_records(root, holder)]
        holders = list_holders(root)
        affected = [holder for holder in holders if holder.name in names]
        digests = {entry.key: entry.digest for holder in affected for entry in holder.entries}
        keys = {each.key for each in damage if each.key and each.kind != "input_missing"}
        iterations = {entry.key: entry.iteration for each in holders for entry in each.entries if entry.key in keys}
        restore = keys_to_restore(Catalogue(root), sorted(keys), iterations)
        store, moves = Store(root), dict[str, str]()
        # Skip problems without a key (a run's record): `artifact_folder` would return the folder of all artifacts.
        for problem in [each for each in damage if each.key and each.kind.startswith(("file_", "record_"))]:
            folder = artifact_folder(root, problem.key)
            if problem.key not in moves and (folder.is_dir() or folder.is_symlink()):
                moves[problem.key] = _describe_move(problem.key, store.put_aside(folder), problem.what)
        aside += moves.values()
    missing = {problem.key for problem in damage if problem.key}
    return RepairPlan(
        aside=aside,
        to_compute={key: digests.get(key, "") for key in sorted(keys)},
        restore=restore,
        runs=[
            holder.name
            for holder in affected
            if holder.keys & missing or (holder.damaged and (holder.keys or holder.was_finished))
        ],
    )


def _describe_move(name: str, path: Path, why: str) -> str:
    return f"set aside {name}: {why}; it lies in {path}"


def _move_records(root: Path, holder: Holder) -> Iterator[str]:
    """Move damaged records of a run or an evaluation aside; the commands that wrote them will write them again."""
    store, folder = Store(root), root / holder.folder
    for file, why in holder.damaged.items():
        if file == runs.ATTEMPT:
            if (folder / file).exists():
                yield _describe_move(file, store.put_aside(folder / file), why)
        elif not file.endswith(ASIDE):
            journal = Journal(root, holder.name, file=file, shelf=holder.shelf)
            yield _describe_move(file, journal.set_aside(), why)
    for record in (runs.RECORD, runs.EVALUATION):
        if record in holder.unknown and (folder / record).exists():
            yield _describe_move(record, store.put_aside(folder / record), holder.unknown)


def end_repair(root: Path, names: Collection[str]) -> None:
    """Move away the copies of damaged journals of runs that were just repaired and have undamaged journals again."""
    for holder in [*list_holders(root), *list_evaluations(root)]:
        is_repaired = holder.name in names if holder.shelf == runs.RUNS else holder.is_finished
        for file in [file for file in holder.damaged if file.endswith(ASIDE)]:
            stem = file.partition(".")[0]
            journal = Journal(root, holder.name, file=f"{stem}.jsonl", shelf=holder.shelf)
            if not journal.read_state().damage and ((is_repaired and stem == "journal") or journal.is_finished()):
                for path in (root / holder.folder).glob(f"{file.removesuffix('.jsonl')}.*"):
                    Store(root).put_aside(path)


def keys_to_restore(
    catalogue: Catalogue, keys: Iterable[str], iterations: Mapping[str, int] | None = None
) -> list[str]:
    """Keys of the pruned artifacts that must be restored to compute these keys, back to complete checkpoints.

    A key without a readable record may need any checkpoint or gradient of its iteration, which `iterations` gives.
    """
    result: dict[str, None] = {}
    queue = [(key, record) for key in keys for record in _needed_by(catalogue, key, (iterations or {}).get(key, -1))]
    while queue:
        user, record = queue.pop()
        removed = pruned.read_removed(artifact_folder(catalogue.root, record.key))
        phase = user.rpartition("-")[0]
        parts = {entry.part for entry in removed.values()}
        # An unknown phase may read any part of a checkpoint.
        reads = FACTS[phase].reads if phase in FACTS else tuple(pruned.PARTS)
        if record.key in result or not parts.intersection(reads):
            continue
        result[record.key] = None
        queue += [(record.key, each) for each in _needed_by(catalogue, record.key, -1)]
    return list(result)


def _needed_by(catalogue: Catalogue, key: str, iteration: int) -> list[Record]:
    """Commit records of the checkpoints and gradients that an artifact is, or may have been, computed from."""
    record = catalogue.find(key)
    if record is None:
        records = catalogue.records.values()
        before = [each for each in records if each.phase in CHECKPOINTS and each.iteration + 1 == iteration]
        return before + [each for each in records if each.phase in GRADIENTS and each.iteration == iteration]
    sources = filter(None, map(catalogue.find_by_id, record.inputs.values()))
    return [each for each in sources if each.phase in (*CHECKPOINTS, *GRADIENTS)]


def keys_to_restore_at(root: Path, run: str, iteration: int) -> list[str]:
    """Keys to restore to complete both roles' checkpoints after `iteration` and the next iteration's gradients.

    Raises UsageError if the run has no such checkpoint.
    """
    catalogue = Catalogue(root)
    holder = holder_of(root, run)
    gradients = [record for record in gradients_of(catalogue, holder) if record.iteration == iteration]
    records = [*checkpoints_at(catalogue, holder, iteration), *gradients]
    return with_keys_to_restore(root, pruned_keys(catalogue, records))


def with_keys_to_restore(root: Path, keys: Sequence[str]) -> list[str]:
    """These keys of pruned artifacts, and the keys of artifacts that must be restored to compute them."""
    return list(dict.fromkeys([*keys, *keys_to_restore(Catalogue(root), keys)]))


def last_stage(holder: Holder) -> str:
    """Last stage of an unfinished run: PHASE@ITERATION, or PHASE outside the loop; empty if it reached no stage."""
    worked = [entry for entry in holder.entries if entry.state == "ran"] or list(holder.entries)
    newest = max((entry.attempt for entry in worked), default=0)
    last = next((entry for entry in reversed(worked) if entry.attempt == newest), None)
    if last is None:
        return ""
    return last.phase if last.iteration < 0 else f"{last.phase}@{last.iteration}"


def describe_repair(root: Path, prepared: RepairPlan, names: Sequence[str], restored: Sequence[str]) -> str:
    """Human-readable summary of a repair, for which the runs `names` were executed again."""
    catalogue = Catalogue(root)
    lines = []
    for key, digest in prepared.to_compute.items():
        record = catalogue.find(key)
        if record is None:
            lines.append(f"not computed {key}: no run needs it")
            continue
        finding = "the same digest" if record.digest == digest else "another digest, so its users ran again"
        lines.append(f"computed again {key}: {finding if digest else 'no journal knew its digest'}")
    lines += [f"restored {key}: the same digest" for key in dict.fromkeys([*prepared.restore, *restored])]
    for name in names:
        entries = [entry for entry in Journal(root, name).last_attempt() if entry.state == "ran"]
        lines.append(f"run {name}: {len(entries)} stages ran, all others were kept")
    if not lines and prepared.aside:
        lines = ["no run computes these again: `infuser doctor` says what remains to be done"]
    return "\n".join(lines or ["nothing is damaged or pruned there"])
