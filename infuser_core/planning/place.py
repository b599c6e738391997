"""Places in the pipeline, `PHASE@ITERATION`, and what a person asks of a run with them."""

from collections.abc import Sequence
from dataclasses import dataclass

from infuser_core.errors import UsageError
from infuser_core.recipe import Recipe

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
    """How much of a run is wanted."""

    again: Place | None = None
    """Computed again from here on, although the store has it."""
    until: Place | None = None
    """Stop after this."""
    only: Place | None = None
    """This alone."""

    def __bool__(self) -> bool:
        return any((self.again, self.until, self.only))


def asked_of(*, again: str = "", until: str = "", only: str = "") -> Asked:
    """What the three options mean. Raises UsageError for another form, or for options that exclude each other."""
    if only and (again or until):
        other = "--from" if again else "--until"
        raise UsageError(f"--only {only} and {other} exclude each other", hint="--only names the one phase that runs")
    return Asked(again=_place(again, "--from"), until=_place(until, "--until"), only=_place(only, "--only"))


def _place(text: str, option: str) -> Place | None:
    if not text:
        return None
    phase, mark, number = text.partition("@")
    if not phase or (mark and not number.removeprefix("-").isdigit()):
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
    runs: list[list[int]] = []
    for number in ordered:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}..{b}" for a, b in runs)
