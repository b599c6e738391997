"""Places in the pipeline, `PHASE@ITERATION`, and stages that are computed again from a place on."""

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
    """A phase, in one iteration or in any."""

    phase: str
    """Phase name."""
    iteration: int | None
    """Co-training iteration, -1 outside the loop; None where none was named."""

    def holds(self, recipe: Recipe) -> bool:
        """Whether a stage with this recipe stands here."""
        return recipe.phase == self.phase and self.iteration in (None, recipe.iteration)

    def __str__(self) -> str:
        return self.phase if self.iteration in (None, -1) else f"{self.phase}@{self.iteration}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Part of a run that is wanted."""

    again: Place | None = None
    """Computed again from here on, although the store has it."""
    until: Place | None = None
    """Stop after this."""
    only: Place | None = None
    """This alone."""

    def __bool__(self) -> bool:
        return any((self.again, self.until, self.only))


def asked_of(*, again: str = "", until: str = "", only: str = "") -> Asked:
    """Places named by the three options. Raises UsageError for another form, or for options that exclude each other."""
    if only and (again or until):
        other = "--from" if again else "--until"
        raise UsageError(f"--only {only} and {other} exclude each other", hint="--only names the one phase that runs")
    return Asked(again=_place(again, "--from"), until=_place(until, "--until"), only=_place(only, "--only"))


def _place(text: str, option: str) -> Place | None:
    if not text:
        return None
    phase, mark, number = text.partition("@")
    if not phase or (mark and not re.fullmatch("-?" + NUMBER, number)):
        raise UsageError(f"{option} {text}: not a place in a run", hint=f"give {_FORM}")
    return Place(phase=phase, iteration=int(number) if mark else None)


def settled(place: Place, recipes: Sequence[Recipe], *, option: str, first: bool = False) -> Place:
    """The place with its iteration, checked against the stages of the run.

    Without an iteration it is the only one that the phase has; the first of several where `first` says so. Raises
    UsageError with the valid names for a place that the run does not have.
    """
    phases = dict.fromkeys(recipe.phase for recipe in recipes)
    if place.phase not in phases:
        raise UsageError(f"{option} {place}: the run has no phase {place.phase}", hint=f"phases: {', '.join(phases)}")
    known = list(dict.fromkeys(recipe.iteration for recipe in recipes if recipe.phase == place.phase))
    if place.iteration in known:
        return place
    if place.iteration is None and (first or len(known) == 1):
        return Place(phase=place.phase, iteration=known[0])
    said = "needs an iteration" if place.iteration is None else f"has no iteration {place.iteration}"
    hint = f"iterations: {_ranges(known)}" if known != [-1] else "it stands outside the loop: leave the iteration out"
    raise UsageError(f"{option} {place}: {place.phase} {said}", hint=hint)


def _ranges(numbers: Sequence[int]) -> str:
    """`0..4, 10` for 0, 1, 2, 3, 4, 10."""
    ordered = sorted(numbers)
    spans: list[list[int]] = []
    for number in ordered:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}..{b}" for a, b in spans)


SALT = "attempt"
"""Name of the salt among a recipe's settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat:
    """One place from which work was asked for again."""

    phase: str
    """Phase name."""
    iteration: int
    """Co-training iteration, or -1 outside the loop."""
    attempt: int
    """The salt: larger than any other in the store when it was asked for."""
    asked_by: str = ""
    """The flow run that asked; asking twice by the same one is asking once."""


class Salts:
    """The salts of one run: of the places that were asked for, and of whatever is made from their artifacts."""

    def __init__(self, repeats: Sequence[Repeat] = ()) -> None:
        self._places = {(repeat.phase, repeat.iteration): repeat.attempt for repeat in repeats}
        self._made: dict[str, int] = {}

    def of(self, phase: str, iteration: int, inputs: Mapping[str, str]) -> int:
        """Salt of a stage; 0 for none. The highest of its place's and its inputs'."""
        inherited = (self._made.get(identity, 0) for identity in inputs.values())
        return max(self._places.get((phase, iteration), 0), *inherited, 0)

    def forced(self, phase: str, iteration: int) -> bool:
        """Whether this very place was asked for."""
        return (phase, iteration) in self._places

    def carry(self, ref: ArtifactRef, recipe: Recipe) -> None:
        """An artifact was made, or found, by a recipe that may hold a salt."""
        if SALT in recipe.config:
            self._made[ref.id] = recipe.config[SALT]


def repeats_of(root: Path, name: str) -> list[Repeat]:
    """Repeats recorded in a run. Raises StoreError when the record is damaged."""
    return [Repeat(**row) for row in runs.known_run(root, name).get("repeats", [])]


def with_repeat(root: Path, name: str, place: Place, *, asked_by: str = "") -> list[Repeat]:
    """The run's repeats with one more, under a salt of its own."""
    known = repeats_of(root, name)
    if asked_by and any(repeat.asked_by == asked_by for repeat in known):
        return known
    assert place.iteration is not None, "settled() names the iteration"
    used = max((repeat.attempt for other in runs.list_runs(root) for repeat in repeats_of(root, other)), default=0)
    new = Repeat(phase=place.phase, iteration=place.iteration, attempt=used + 1, asked_by=asked_by)
    kept = [repeat for repeat in known if (repeat.phase, repeat.iteration) != (new.phase, new.iteration)]
    return [*kept, new]


def record(root: Path, name: str, repeats: Sequence[Repeat]) -> None:
    """Remember the run's repeats, in one atomic step."""
    runs.change_run(root, name, repeats=[asdict(repeat) for repeat in repeats])
