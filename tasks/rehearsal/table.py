"""Measured lines of a rehearsal beside the planner's forecast, and the planner's constants fitted to them."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from infuser_core.capacity.asked import Asked
from infuser_core.capacity.forecast import Timed, held, timed
from infuser_core.capacity.phases import OTHER, phases_of
from infuser_core.capacity.training import Work
from infuser_core.capacity.volume import Volume
from infuser_core.memory.hardware import Efficiency
from infuser_core.planning.calibrate import Observed, fitted
from infuser_core.terminal import table

PASSED, FAILED, SLOWER, UNREACHED = "passed", "failed", "slower than planned", "not reached"
TOLERATED = 2.0
"""A line is slower than planned where it takes more than so many times the forecast: small batches fill no machine."""
LOADING = ("files", "weights")
"""Terms of a phase that are no computing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One step of a rehearsal and its result."""

    step: str
    """Name of the step."""
    status: str
    """passed, failed, slower than planned, or not reached."""
    seconds: float = 0.0
    """Wall-clock seconds."""
    tokens: int = 0
    """Tokens that were computed; 0 where the step computes none."""
    planned: float | None = None
    """Seconds by the planner's forecast for so many tokens; None where it has none."""
    gigabytes: float | None = None
    """Largest main memory so far of this process and the engine's own, GB."""
    accelerator: float | None = None
    """Most memory that one accelerator of this machine held meanwhile beyond its start, GB; None where none tells."""
    told: str = ""
    """Finding or error, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The planner's speeds by phase and its memory by role."""

    rates: Mapping[str, float]
    """Tokens per second by phase."""
    bytes: Mapping[str, float]
    """Bytes of one accelerator, or of one rank's share of the host, by role."""

    @classmethod
    def of(cls, asked: Asked) -> "Forecast":
        """That of a question to the planner."""
        rates = {}
        for phase in phases_of(asked):
            computing = sum(seconds for term, seconds in phase.terms.items() if term not in LOADING)
            if phase.tokens and computing:
                rates[phase.name] = phase.tokens / computing
        return cls(rates=rates, bytes={each.role: each.total for each in held(asked)})

    def seconds(self, phase: str, tokens: int) -> float | None:
        """Seconds of a phase for so many tokens."""
        return tokens / self.rates[phase] if phase in self.rates else None


def judged(seconds: float, planned: float | None) -> str:
    """Status of a step that did what it should."""
    return SLOWER if planned is not None and seconds > TOLERATED * planned else PASSED


def peak_memory(pids: list[int]) -> float:
    """Sum over processes of the most main memory that each has held, GB; those that are gone count nothing."""
    total = 0.0
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
        except OSError:
            continue
        total += sum(float(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
    return total / 1e9


def as_json(lines: list[Line], forecast: Forecast | None) -> dict[str, Any]:
    """The table for programs."""
    failed = [line.step for line in lines if line.status == FAILED]
    return {
        "failed": failed,
        "lines": [asdict(line) for line in lines],
        "planned": asdict(forecast) if forecast else {},
    }


def as_text(lines: list[Line], forecast: Forecast | None) -> str:
    """The table, a sentence per failure, and what the planner says of memory."""
    measured = any(line.accelerator is not None for line in lines)
    rows = [
        {
            "step": line.step,
            "status": line.status,
            "seconds": round(line.seconds, 2),
            "planned": "" if line.planned is None else f"{line.planned:.2f}",
            "tokens/s": f"{line.tokens / line.seconds:,.0f}" if line.tokens and line.seconds else "",
            "GB": "" if line.gigabytes is None else f"{line.gigabytes:.2f}",
            **({"GPU GB": "" if line.accelerator is None else f"{line.accelerator:.2f}"} if measured else {}),
            "found": "" if line.status == FAILED else line.told,
        }
        for line in lines
    ]
    words = [f"{line.step} failed: {line.told}" for line in lines if line.status == FAILED]
    if forecast is not None:
        planned = ", ".join(f"{role} {size / 1e9:.2f} GB" for role, size in forecast.bytes.items())
        words.append(f"planned memory of one accelerator or rank, without the libraries' own: {planned}")
    counts = {name: sum(line.status == name for line in lines) for name in (PASSED, SLOWER, FAILED, UNREACHED)}
    words.append("; ".join(f"{count} {name}" for name, count in counts.items() if count))
    return "\n".join([table(rows, width=100), *words])


STEPS = {
    "generation": "generate_questions",
    "dev gradient": "dev_gradient",
    "scoring": "score_influence",
}
"""Steps whose seconds the planner knows, and their phases; an update also writes its checkpoint."""


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
    """The planner's question about a rehearsal's batch alone; its files are cached, so disks take no time."""
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
