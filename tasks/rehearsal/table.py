"""Measured lines of a rehearsal beside the planner's forecast: passed, failed, slower than planned, not reached."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from infuser_core.capacity.asked import Asked
from infuser_core.capacity.forecast import held
from infuser_core.capacity.phases import Phase, phases_of
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
        rates = {phase.name: rate for phase in phases_of(asked) if (rate := _rate(phase))}
        return cls(rates=rates, bytes={each.role: each.total for each in held(asked)})

    def seconds(self, phase: str, tokens: int) -> float | None:
        """Seconds of a phase for so many tokens."""
        return tokens / self.rates[phase] if phase in self.rates else None


def _rate(phase: Phase) -> float:
    computing = sum(seconds for term, seconds in phase.terms.items() if term not in LOADING)
    return phase.tokens / computing if computing else 0.0


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
