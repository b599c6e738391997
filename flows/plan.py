"""Plans of runs and forks: a walk along the pipeline that computes nothing."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from flows.life_cycle import life_cycle
from infuser_core import settings
from infuser_core.config.overlays import validate
from infuser_core.config.phase_table import MEASUREMENTS
from infuser_core.config.run import RunConfig
from infuser_core.errors import UsageError
from infuser_core.planning import place
from infuser_core.planning.fork import Fork
from infuser_core.planning.place import Place, Repeat, RunPlaces, Salts, resolve_place
from infuser_core.planning.plan import FormerRun, Leaf, Plan, leaves_that_differ, make_plan
from infuser_core.results.lineage.graph import Graph
from infuser_core.store import runs
from infuser_core.store.catalogue import Catalogue
from infuser_core.store.history import History, load_history
from infuser_core.store.journal import Journal
from infuser_core.store.recipe import Record
from infuser_core.store.store import Store
from tasks.run import digests_of, looked_at
from tasks.run_control import Planning, Stop


def checked(config: RunConfig, name: str, asked: RunPlaces) -> RunPlaces:
    """The places that are asked for, with every iteration named. Raises UsageError for others.

    So it does where the one stage that is wanted lacks an input.
    """
    if not asked:
        return asked
    root = settings.store_root()
    return _settled(asked, walk(root, name, load_history(root, name, config), place.load_repeats(root, name)), name)


def _settled(asked: RunPlaces, planned: Planning, name: str) -> RunPlaces:
    recipes = [step.recipe for step in planned.steps]
    only = resolve_place(asked.only, recipes, option="--only") if asked.only else None
    if only is not None:
        _check_inputs(only, planned, name)
    return RunPlaces(
        again=resolve_place(asked.again, recipes, option="--from") if asked.again else None,
        until=resolve_place(asked.until, recipes, option="--until", first=True) if asked.until else None,
        only=only,
    )


def _check_inputs(only: Place, planned: Planning, name: str) -> None:
    """Raises UsageError when the one wanted stage lacks an input."""
    for recipe in [step.recipe for step in planned.steps if only.holds(step.recipe)]:
        for kind, identity in recipe.inputs.items():
            if identity in planned.absent:
                raise UsageError(
                    f"--only {only}: its input {kind} ({planned.absent[identity].title}) is not in the store",
                    hint=f"`infuser resume {name} --until {only}` computes what it needs, then it",
                )


def walk(
    root: Path, name: str, history: History, repeats: Sequence[Repeat], *, until: Place | None = None, like: str = ""
) -> Planning:
    """A walk along the whole pipeline, or until a place; `like` is the run whose digests are expected, else its own."""
    planned = Planning(Store(root), digests=digests_of(root, like or name), last=until, salts=Salts(repeats))
    with looked_at(name, history, planned, root) as run, suppress(Stop):
        life_cycle(run)
    return planned


def plan(history: History, name: str, asked: RunPlaces, *, repeats: Sequence[Repeat] = ()) -> Plan:
    """The plan of a run, stage by stage. Raises UsageError for places that it does not have.

    `repeats` are those of a run that is not recorded yet.
    """
    root = settings.store_root()
    known = place.load_repeats(root, name) or list(repeats)
    # Forks expect what their origin had.
    like = name if name in runs.list_runs(root) else history.forked_from
    asked = _settled(asked, walk(root, name, history, known, like=like), name) if asked else asked
    again = place.add_repeat(root, name, asked.again) if asked.again else known
    walked = walk(root, name, history, again, until=asked.until, like=like)
    other, catalogue = _nearest(root, name, history), Catalogue(root)
    graph = _graph(catalogue, other) if other else None
    return make_plan(
        name,
        walked.steps,
        before=_before(root, history, graph),
        salts=Salts(again),
        missing=walked.absent,
        known=list(catalogue.records.values()),
        compared_with=other,
        asked=asked,
        notes=_notes(root, name, history, walked),
    )


def _graph(catalogue: Catalogue, run: str) -> Graph:
    """Artifacts that a run holds and that are not deleted: the plan says what is to be computed again."""
    known = {*catalogue.records, *catalogue.damaged}
    entries = Journal(catalogue.root, run).latest()
    return Graph(catalogue, run, dict.fromkeys(entry.key for entry in entries if entry.key in known))


def plan_fork(fork: Fork) -> Plan:
    """The plan of a fork. Raises UsageError where its origin has not come that far."""
    found = plan(fork.history, fork.name, RunPlaces(), repeats=fork.repeats)
    # A fork has from its origin what stands before the loop, and the iterations before its own.
    shared = [
        each for each in found.stages if each.recipe.phase not in MEASUREMENTS and each.recipe.iteration < fork.at
    ]
    absent = [stage for stage in shared if not stage.cached]
    if absent:
        first = absent[0]
        complete = max(first.recipe.iteration, 0)
        raise UsageError(
            f"run {fork.origin} has not come to iteration {fork.at}: {first.title} is missing "
            f"({'; '.join(reason.text for reason in first.reasons[:2])})",
            hint=f"--fork {fork.origin}@{complete} or earlier, or `infuser resume {fork.origin}` first",
        )
    return found


def _before(root: Path, history: History, graph: Graph | None) -> FormerRun:
    seen = frozenset(
        entry.key for run in runs.list_runs(root) for entry in Journal(root, run).entries() if entry.digest
    )
    records: list[Record] = list(graph.records.values()) if graph else []
    changed = _changed(root, graph.run, history.latest) if graph else []
    return FormerRun(records=records, settings=changed, seen=seen)


def _changed(root: Path, run: str, config: RunConfig) -> list[Leaf]:
    recorded = validate(runs.read_config(root, run)).model_dump(mode="json")
    return leaves_that_differ(recorded, config.model_dump(mode="json"))


def _nearest(root: Path, name: str, history: History) -> str:
    """The run to compare with: itself, its origin, or the one with the fewest other settings, the latest of equals."""
    known = [run for run in runs.list_runs(root) if Journal(root, run).path.exists()]
    for own in (name, history.forked_from):
        if own in known:
            return own
    return min(reversed(known), key=lambda run: len(_changed(root, run, history.latest)), default="")


def _notes(root: Path, name: str, history: History, walked: Planning) -> list[str]:
    """Facts that the plan cannot know, and whether its name is taken."""
    notes = list(dict.fromkeys(walked.notes))
    recorded = _changed(root, name, history.latest) if name in runs.list_runs(root) else []
    changed = [str(leaf) for leaf in recorded if leaf.name not in ("name", "variant")]
    if changed:
        said = ", ".join(changed[:3])
        notes.append(f"run {name} is recorded with other settings ({said}): this one needs another --name")
    return notes
