"""Runs whose artifacts are committed uncomputed, to plan on: keys, records and journals are real, content is not."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from launcher import ROOT

from flows.life_cycle import life_cycle
from flows.plan import walk
from infuser_core.config.overlays import load, merge, validate
from infuser_core.config.run import RunConfig
from infuser_core.planning.place import Place, Repeat, Salts, parse_places
from infuser_core.schemas import Selection
from infuser_core.store import runs
from infuser_core.store.history import History, load_history
from infuser_core.store.journal import Journal
from infuser_core.store.recipe import ArtifactRef, Recipe
from infuser_core.store.store import Outcome, Store, Table
from tasks.run import digests_of, walk_run
from tasks.run_control import Planning, StageCall, Stop

SHORT = {
    "cotrain": {"iterations": 3, "dev_only": True, "generator": {"update": False}, "validate_every": 1},
    "evaluate": {"benchmarks": [{"name": "nano_target", "label": "exam"}]},
}


def short_config(**changes: Any) -> RunConfig:
    """Three iterations without a corpus: the same rules in fewer stages."""
    base = merge(load([ROOT / "configs" / "nano.yaml"]).model_dump(mode="json"), SHORT)
    return validate(merge(base, changes))


class Filling(Planning):
    """Commits whatever the pipeline asks for and the store lacks, each artifact with its key as its only content."""

    seconds = 2.0

    def __init__(self, root: Path, name: str, *, last: Place | None, salts: Salts) -> None:
        super().__init__(Store(root), digests=digests_of(root, name), last=last, salts=salts)
        self._journal = Journal(root, name)
        self._journal.start_attempt()

    def take(self, call: StageCall) -> ArtifactRef:
        recipe = call.recipe()
        self.enter(recipe)
        found = self._store.find(recipe)
        ref = found or self._made(recipe)
        self.salts.carry(ref, recipe)
        self._journal.append(
            phase=recipe.phase, iteration=recipe.iteration, state="cached" if found else "ran", seconds=self.seconds,
            key=ref.key, digest=ref.digest,
        )  # fmt: skip
        return ref

    def _made(self, recipe: Recipe) -> ArtifactRef:
        tables = {}
        if recipe.phase == "select":
            last = max(int(name.rpartition("-")[2]) for name in recipe.inputs)
            rows = [Selection(selected_iteration=last, checkpoint_id="", accuracy=0.0)]
            tables = {"selections": Table(row_type=Selection, rows=rows)}
        with self._store.workspace(recipe) as workspace:
            (workspace / "content").write_text(recipe.key)
            return self._store.commit(recipe, workspace, Outcome(tables=tables), seconds=self.seconds)

    def finish(self) -> None:
        self._journal.finish()


def fill(
    root: Path, name: str, config: RunConfig, *, repeats: Sequence[Repeat] = (), until: str = ""
) -> dict[tuple[str, int], list[str]]:
    """A run with all its artifacts, or those until a place; returns their keys by phase and iteration."""
    runs.create_run(root, name, config.model_dump(mode="json"))
    last = parse_places(until=until).until
    filling = Filling(root, name, last=last, salts=Salts(repeats))
    with walk_run(name, load_history(root, name, config), filling, root) as run, suppress(Stop):
        life_cycle(run)
    if not until:
        runs.write_record(root, name, runs.ATTEMPT, {"run": name, "seconds": 0.1})
        filling.finish()
    return keys(root, name)


def keys(root: Path, name: str) -> dict[tuple[str, int], list[str]]:
    """Keys of a run's artifacts by phase and iteration."""
    found: dict[tuple[str, int], list[str]] = {}
    for entry in Journal(root, name).latest():
        found.setdefault((entry.phase, entry.iteration), []).append(entry.key)
    return found


def keys_of(root: Path, name: str, history: History, *, repeats: Sequence[Repeat] = ()) -> list[tuple[str, int, str]]:
    """Phase, iteration and key of every stage that a run would come by."""
    planned = walk(root, name, history, repeats)
    return [(step.recipe.phase, step.recipe.iteration, step.recipe.key) for step in planned.steps]
