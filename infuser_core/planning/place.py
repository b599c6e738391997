"""Places in the pipeline, written `PHASE@ITERATION`, and requests to recompute stages from a place on."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from infuser_core.errors import NUMBER, UsageError
from infuser_core.store import runs
from infuser_core.store.recipe import ArtifactRef, Recipe

_FORM = "PHASE@ITERATION, e.g. update_solver@3, or a phase outside the loop alone, e.g. pool"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A phase of the pipeline in one iteration, or in any iteration."""

    phase: str
    iteration: int | None
    """Co-training iteration, -1 outside the loop; None for any."""

    def holds(self, recipe: Recipe) -> bool:
        """Whether a stage with this recipe is at this place."""
        return recipe.phase == self.phase and self.iteration in (None, recipe.iteration)

    def __str__(self) -> str:
        return self.phase if self.iteration in (None, -1) else f"{self.phase}@{self.iteration}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlaces:
    """The part of a run to compute (--from, --until, --only); the whole run if all are None."""

    again: Place | None = None
    """First stage to recompute although the store has its artifact."""
    until: Place | None = None
    """Last stage."""
    only: Place | None = None
    """The only stage."""

    def __bool__(self) -> bool:
        return any((self.again, self.until, self.only))


def parse_places(*, again: str = "", until: str = "", only: str = "") -> RunPlaces:
    """Parse the values of --from, --until and --only. Raises UsageError for a wrong form or a contradiction."""
    if only and (again or until):
        other = "--from" if again else "--until"
        raise UsageError(f"--only {only} and {other} exclude each other", hint="--only names the one phase that runs")
    return RunPlaces(again=_place(again, "--from"), until=_place(until, "--until"), only=_place(only, "--only"))


def _place(text: str, option: str) -> Place | None:
    if not text:
        return None
    phase, mark, number = text.partition("@")
    if not phase or (mark and not re.fullmatch("-?" + NUMBER, number)):
        raise UsageError(f"{option} {text}: not a place in a run", hint=f"give {_FORM}")
    return Place(phase=phase, iteration=int(number) if mark else None)


def resolve_place(place: Place, recipes: Sequence[Recipe], *, option: str, first: bool = False) -> Place:
    """Complete a place with its iteration and check it against the stages of the run.

    A missing iteration is the only one of the phase, or with `first` the first of several. Raises
    UsageError with the valid names for a place that the run does not have.
    """
    phases = dict.fromkeys(recipe.phase for recipe in recipes)
    if place.phase not in phases:
        raise UsageError(f"{option} {place}: the run has no phase {place.phase}", hint=f"phases: {', '.join(phases)}")
    iterations = list(dict.fromkeys(recipe.iteration for recipe in recipes if recipe.phase == place.phase))
    if place.iteration in iterations:
        return place
    if place.iteration is None and (first or len(iterations) == 1):
        return Place(phase=place.phase, iteration=iterations[0])
    problem = "needs an iteration" if place.iteration is None else f"has no iteration {place.iteration}"
    hint = "it is outside the loop: leave the iteration out"
    if iterations != [-1]:
        hint = f"iterations: {_format_ranges(iterations)}"
    raise UsageError(f"{option} {place}: {place.phase} {problem}", hint=hint)


def _format_ranges(numbers: Sequence[int]) -> str:
    """Write numbers as ranges: `0..4, 10` for 0, 1, 2, 3, 4, 10."""
    ordered = sorted(numbers)
    spans: list[list[int]] = []
    for number in ordered:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}..{b}" for a, b in spans)


SALT = "attempt"
"""Setting that holds a recipe's salt, a number that changes the key so that the stage is recomputed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat:
    """A request to recompute a run from a place on."""

    phase: str
    iteration: int
    """Co-training iteration, or -1 outside the loop."""
    attempt: int
    """The salt in recipes: larger than any other in the store at the time of the request."""
    asked_by: str = ""
    """Prefect flow run that requested it; a retry of the flow run does not request again."""


class Salts:
    """The salts of one run: of places to recompute, and of the stages that use their artifacts."""

    def __init__(self, repeats: Sequence[Repeat] = ()) -> None:
        self._places = {(repeat.phase, repeat.iteration): repeat.attempt for repeat in repeats}
        self._by_artifact: dict[str, int] = {}

    def of(self, phase: str, iteration: int, inputs: Mapping[str, str]) -> int:
        """Salt of a stage, 0 for none: the highest among its place's and its inputs'."""
        inherited = (self._by_artifact.get(identity, 0) for identity in inputs.values())
        return max(self._places.get((phase, iteration), 0), *inherited, 0)

    def is_forced(self, phase: str, iteration: int) -> bool:
        """Whether a repeat was requested at this place."""
        return (phase, iteration) in self._places

    def carry(self, ref: ArtifactRef, recipe: Recipe) -> None:
        """Remember the salt of an artifact's recipe, if any, for stages that use the artifact."""
        if SALT in recipe.config:
            self._by_artifact[ref.id] = recipe.config[SALT]


def load_repeats(root: Path, name: str) -> list[Repeat]:
    """Read the requests to recompute that a run's record holds. Raises StoreError when the record is damaged."""
    return [Repeat(**row) for row in runs.read_run_or_empty(root, name).get("repeats", [])]


def add_repeat(root: Path, name: str, place: Place, *, asked_by: str = "") -> list[Repeat]:
    """The run's requests to recompute, with a new one unless the same flow run has already requested it."""
    repeats = load_repeats(root, name)
    if asked_by and any(repeat.asked_by == asked_by for repeat in repeats):
        return repeats
    assert place.iteration is not None, "resolve_place() names the iteration"
    used = max((repeat.attempt for other in runs.list_runs(root) for repeat in load_repeats(root, other)), default=0)
    new = Repeat(phase=place.phase, iteration=place.iteration, attempt=used + 1, asked_by=asked_by)
    others = [repeat for repeat in repeats if (repeat.phase, repeat.iteration) != (new.phase, new.iteration)]
    return [*others, new]


def record_repeats(root: Path, name: str, repeats: Sequence[Repeat]) -> None:
    """Write the requests to recompute into the run's record, atomically."""
    runs.change_run(root, name, repeats=[asdict(repeat) for repeat in repeats])
