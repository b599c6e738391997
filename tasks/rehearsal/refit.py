"""The planner's constants fitted to a rehearsal's own timings, and the forecast of the whole run with them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from infuser_core.capacity.asked import Asked
from infuser_core.capacity.forecast import Timed, timed
from infuser_core.capacity.hardware import Efficiency
from infuser_core.capacity.phases import OTHER
from infuser_core.capacity.training import Work
from infuser_core.capacity.volume import Volume
from infuser_core.planning.calibrate import Observed, fitted
from tasks.rehearsal.table import PASSED, SLOWER, Line

STEPS = {
    "generation": "generate_questions",
    "dev gradient": "dev_gradient",
    "scoring": "score_influence",
    "update": "update_solver",
}
"""Steps whose seconds the planner knows, and their phases."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refit:
    """Outcome of a fit."""

    constants: Efficiency
    """Constants that the timings agree with."""
    before: Timed
    """The run by the constants that the rehearsal began with."""
    after: Timed
    """The same by these."""

    @property
    def text(self) -> str:
        """One line for people."""
        between = sum(phase.seconds for phase in self.after.phases if phase.name == OTHER)
        return (
            f"forecast by these timings: {self.after.iteration:,.0f} s per iteration, {self.after.hours:,.1f} h in all "
            f"(before: {self.before.iteration:,.0f} s, {self.before.hours:,.1f} h); {between:,.1f} s of it lie between "
            "phases, which is no timing but the published runs'"
        )


def refit(asked: Asked, lines: Sequence[Line], *, sampled: Work, trained: Work) -> Refit | None:
    """Constants for the work that was rehearsed; None where nothing was timed."""
    passed = [each for each in lines if each.step in STEPS and each.status in (PASSED, SLOWER)]
    if not passed:
        return None
    seconds = {STEPS[each.step]: each.seconds for each in passed}
    observed = Observed(run="rehearsal", asked=batch_of(asked, sampled=sampled, trained=trained), seconds=seconds)
    constants = fitted([observed], asked.efficiency)
    return Refit(constants=constants, before=timed(asked), after=timed(replace(asked, efficiency=constants)))


def batch_of(asked: Asked, *, sampled: Work, trained: Work) -> Asked:
    """The planner's question about a rehearsal's batch alone.

    Its disk takes no time: files come from the page cache, and weights were taken in a step of their own.
    """
    work = Volume(
        dev=None,
        dev_trained=trained,
        written=sampled,
        answered=None,
        scored=trained,
        generator=None,
        solver=trained,
        validation=sampled,
    )
    return replace(asked, batch=work, disk=float("inf"))
