"""Plan runs and forks: walk the pipeline without computing anything, and list what would run and why."""

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
from infuser_core.planning.plan import FormerRun, Leaf, RunPlan, leaves_that_differ, make_plan
from infuser_core.results.lineage.graph import Graph
from infuser_core.store import runs
from infuser_core.store.catalogue import Catalogue
from infuser_core.store.history import History, load_history
from infuser_core.store.journal import Journal
from infuser_core.store.recipe import Record
from infuser_core.store.store import Store
from tasks.run import digests_of, walk_run
from tasks.run_control import Planning, Stop


def check_request(config: RunConfig, name: str, request: RunPlaces) -> RunPlaces:
    """Check requested places and complete their iterations. Raises UsageError for places that the run lacks, or if the
    input of a stage that is to run alone is missing."""
    if not request:
        return request
    root = settings.store_root()
    walked = walk(root, name, load_history(root, name, config), place.load_repeats(root, name))
    return _with_iterations(request, walked, name)


def _with_iterations(request: RunPlaces, walked: Planning, name: str) -> RunPlaces:
    recipes = [step.recipe for step in walked.steps]
    only = resolve_place(request.only, recipes, option="--only") if request.only else None
    for recipe in [recipe for recipe in recipes if only is not None and only.holds(recipe)]:
        for kind, identity in recipe.inputs.items():
            if identity in walked.absent:
                raise UsageError(
                    f"--only {only}: its input {kind} ({walked.absent[identity].title}) is not in the store",
                    hint=f"`infuser resume {name} --until {only}` computes what it needs, then it",
                )
    return RunPlaces(
        again=resolve_place(request.again, recipes, option="--from") if request.again else None,
        until=resolve_place(request.until, recipes, option="--until", first=True) if request.until else None,
        only=only,
    )


def walk(
    root: Path, name: str, history: History, repeats: Sequence[Repeat], *, until: Place | None = None, like: str = ""
) -> Planning:
    """Walk the pipeline to its end or a place without running it. `like`: run whose digests are expected."""
    control = Planning(Store(root), digests=digests_of(root, like or name), last=until, salts=Salts(repeats))
    with walk_run(name, history, control, root) as run, suppress(Stop):
        life_cycle(run)
    return control


def plan(history: History, name: str, request: RunPlaces, *, repeats: Sequence[Repeat] = ()) -> RunPlan:
    """Plan a run, stage by stage. Raises UsageError for requested places that it does not have.

    `repeats` are requests to recompute, for a run that is not recorded yet.
    """
    root = settings.store_root()
    recorded = name in runs.list_runs(root)
    present = place.load_repeats(root, name) or list(repeats)
    # A new fork expects the digests of its origin.
    like = name if recorded else history.forked_from
    if request:
        request = _with_iterations(request, walk(root, name, history, present, like=like), name)
    again = place.add_repeat(root, name, request.again) if request.again else present
    walked = walk(root, name, history, again, until=request.until, like=like)
    notes = list(dict.fromkeys(walked.notes))
    changed = _changed(root, name, history.latest) if recorded else []
    conflicts = [str(leaf) for leaf in changed if leaf.name not in ("name", "variant")]
    if conflicts:
        some = ", ".join(conflicts[:3])
        notes.append(f"run {name} is recorded with other settings ({some}): this one needs another --name")
    other, catalogue = _nearest(root, name, history), Catalogue(root)
    return make_plan(
        name,
        walked.steps,
        before=_before(catalogue, other, history),
        salts=Salts(again),
        missing=walked.absent,
        stored=list(catalogue.records.values()),
        compared_with=other,
        places=request,
        notes=notes,
    )


def _before(catalogue: Catalogue, other: str, history: History) -> FormerRun:
    """Keys of all runs' artifacts, and records and settings of the run to compare with, if any."""
    root = catalogue.root
    computed = {entry.key for run in runs.list_runs(root) for entry in Journal(root, run).entries() if entry.digest}
    records: list[Record] = []
    changed: list[Leaf] = []
    if other:
        # Leave out deleted artifacts: the plan lists them as recomputed.
        stored = {*catalogue.records, *catalogue.damaged}
        keys = dict.fromkeys(entry.key for entry in Journal(root, other).latest() if entry.key in stored)
        records = list(Graph(catalogue, other, keys).records.values())
        changed = _changed(root, other, history.latest)
    return FormerRun(records=records, settings=changed, keys_of_all_runs=frozenset(computed))


def plan_fork(fork: Fork) -> RunPlan:
    """Plan a fork. Raises UsageError if its origin has not reached the fork's iteration."""
    result = plan(fork.history, fork.name, RunPlaces(), repeats=fork.repeats)
    # A fork shares with its origin the stages before the loop and the iterations before its own.
    shared = [
        stage for stage in result.stages if stage.recipe.phase not in MEASUREMENTS and stage.recipe.iteration < fork.at
    ]
    absent = [stage for stage in shared if not stage.cached]
    if absent:
        first = absent[0]
        complete = max(first.recipe.iteration, 0)
        raise UsageError(
            f"run {fork.origin} has not reached iteration {fork.at}: {first.title} is missing "
            f"({'; '.join(reason.text for reason in first.reasons[:2])})",
            hint=f"--fork {fork.origin}@{complete} or earlier, or `infuser resume {fork.origin}` first",
        )
    return result


def _changed(root: Path, run: str, config: RunConfig) -> list[Leaf]:
    recorded = validate(runs.read_config(root, run)).model_dump(mode="json")
    return leaves_that_differ(recorded, config.model_dump(mode="json"))


def _nearest(root: Path, name: str, history: History) -> str:
    """Find the run to compare with: itself, its origin, or the latest of those with the fewest different settings."""
    candidates = [run for run in runs.list_runs(root) if Journal(root, run).path.exists()]
    for related in (name, history.forked_from):
        if related in candidates:
            return related
    return min(reversed(candidates), key=lambda run: len(_changed(root, run, history.latest)), default="")
