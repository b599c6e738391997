"""`infuser doctor --repair`: recompute artifacts of runs that the store lacks."""

from collections.abc import Sequence
from pathlib import Path

from flows.execute import execute
from flows.plan import walk
from infuser_core.config.overlays import validate
from infuser_core.config.phase_table import Phase
from infuser_core.config.run import RunConfig
from infuser_core.errors import StoreError
from infuser_core.planning import place
from infuser_core.planning.place import parse_places
from infuser_core.store import doctor, runs
from infuser_core.store.catalogue import Holder, list_holders
from infuser_core.store.history import load_history
from infuser_core.store.store import restoring


def repair_runs(root: Path, names: Sequence[str], restore: Sequence[str]) -> None:
    """Recompute the missing artifacts of these runs, and the removed ones whose keys are in `restore`.

    Raises StoreError if this version of the code would make other artifacts than the run holds.
    """
    with restoring(restore, stay=True):
        for holder in [holder for holder in list_holders(root) if holder.name in names]:
            config = validate(runs.read_config(root, holder.name))
            until = "" if holder.was_finished else doctor.last_stage(holder)
            _refuse_other_code(root, holder, config, until)
            execute(config, holder.name, places={"until": until} if until else {})


def _refuse_other_code(root: Path, holder: Holder, config: RunConfig, until: str) -> None:
    """Raise StoreError if the missing artifacts would get other keys: a repair must not recompute a whole run."""
    history = load_history(root, holder.name, config)
    last = parse_places(until=until).until
    steps = walk(root, holder.name, history, place.load_repeats(root, holder.name), until=last).steps
    # Steps after a missing selection are uncertain: they depend on the selected checkpoint.
    selections = [number for number, step in enumerate(steps) if step.recipe.phase == Phase.SELECT and not step.stored]
    missing = [step for step in steps[: selections[0] + 1 if selections else None] if step.is_final and not step.stored]
    foreign = [step.recipe for step in missing if step.recipe.key not in holder.keys]
    if foreign:
        raise StoreError(
            f"run {holder.name} was made by another version of the code: {foreign[0].phase} would be {foreign[0].key}",
            hint=f"`infuser resume {holder.name} --dry-run` says what is different; `infuser resume` computes it anew",
        )
