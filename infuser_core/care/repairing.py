"""`infuser repair`, the part before anything is computed: what is damaged moves aside, and the index is built anew."""

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from infuser_core import runs
from infuser_core.care import pruned
from infuser_core.care.digests import Progress
from infuser_core.care.health import examine
from infuser_core.care.holders import Holder, checkpoints, holders
from infuser_core.care.problem import Health, Problem
from infuser_core.errors import UsageError
from infuser_core.lineage.graph import CHECKPOINTS
from infuser_core.lineage.index import FILE, Catalogue, Record
from infuser_core.store import Store

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
