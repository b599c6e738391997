"""The second half of `infuser doctor --repair`: runs go over what they hold and compute what is missing."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from flows.execute import execute
from flows.plan import walk
from infuser_core.config.overlays import validate
from infuser_core.config.phase_table import Phase
from infuser_core.config.run import RunConfig
from infuser_core.errors import StoreError
from infuser_core.planning import place
from infuser_core.planning.place import parse_places
from infuser_core.planning.plan import SurveyedStage
from infuser_core.store import doctor, runs
from infuser_core.store.catalogue import Holder, holders
from infuser_core.store.history import load_history
from infuser_core.store.store import restoring


def mend(root: Path, names: Sequence[str], restore: Sequence[str]) -> None:
    """Compute what these runs hold and the store lacks, and pruned `restore`.

    Raises StoreError where this version of the code would make other artifacts than the run holds.
    """
    with restoring(restore, stay=True):
        for holder in [each for each in holders(root) if each.name in names]:
            config = validate(runs.read_config(root, holder.name))
            until = "" if holder.finished else doctor.last_place(holder)
            _refuse_other_code(root, holder, config, until)
            execute(config, holder.name, asked={"until": until} if until else {})


def _refuse_other_code(root: Path, holder: Holder, config: RunConfig, until: str) -> None:
    """Repairing must not turn into computing a run anew under other keys."""
    history = load_history(root, holder.name, config)
    last = parse_places(until=until).until
    planned = walk(root, holder.name, history, place.load_repeats(root, holder.name), until=last)
    steps = [step for step in _certain(planned.steps) if step.is_final and not step.stored]
    foreign = [step.recipe for step in steps if step.recipe.key not in holder.keys]
    if foreign:
        raise StoreError(
            f"run {holder.name} was made by another version of the code: {foreign[0].phase} would be {foreign[0].key}",
            hint=f"`infuser resume {holder.name} --dry-run` says what is different; `infuser resume` computes it anew",
        )


def _certain(steps: Iterable[SurveyedStage]) -> Iterator[SurveyedStage]:
    """The steps up to a lost selection: nobody knows yet which checkpoint the others are about."""
    for step in steps:
        yield step
        if step.recipe.phase == Phase.SELECT and not step.stored:
            return
