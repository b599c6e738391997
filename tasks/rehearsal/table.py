"""Result of a rehearsal: a line per step, its seconds extrapolated to the run, as text, JSON and YAML."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from infuser_core.config.run import RunConfig
from infuser_core.memory.shape import Shape
from infuser_core.planning.hours import (
    KINDS,
    SAMPLING,
    SCORING,
    TRAINING,
    GroupWork,
    gradient_flops,
    iteration_seconds,
    parse_lengths,
    phase_work,
    scoring_flops,
)
from infuser_core.planning.setup import Setup
from infuser_core.terminal import format_rows

PASSED, FAILED, UNREACHED = "passed", "failed", "not reached"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One step of a rehearsal and its result."""

    step: str
    status: str
    """passed, failed, or not reached."""
    seconds: float = 0.0
    tokens: int = 0
    """Tokens that the step computed, or 0."""
    gigabytes: float | None = None
    """Peak main memory of this process and the engine's processes so far, GB."""
    accelerator: float | None = None
    """Peak memory of one accelerator above its first reading, GB; None if it is not measured."""
    told: str = ""
    """Finding or error message."""


def peak_memory(pids: list[int]) -> float:
    """Sum the peak main memory of processes, GB; ended processes count as 0."""
    total = 0.0
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
        except OSError:
            continue
        total += sum(float(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
    return total / 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Extrapolation:
    """A run's duration, extrapolated from the seconds of its rehearsal."""

    pace: Mapping[str, float]
    """Seconds per FLOP by kind of work, if all engines of that kind work."""
    phases: Mapping[str, float]
    """Seconds of one iteration by phase, and of saving checkpoints as `save`."""
    iteration: float
    """Seconds of one iteration."""
    iterations: int
    """Iterations of the run."""
    hours: float
    """Hours of all iterations, without validations."""


def extrapolate(
    config: RunConfig, shape: Shape, lines: Sequence[Line], *, sampled: GroupWork, trained: GroupWork
) -> Extrapolation | None:
    """Extrapolate to the run: seconds per FLOP of three steps times the FLOPs of an iteration, plus its checkpoints.

    The steps are generation, dev gradient and scoring; `sampled`, `trained`: size of their batch. None if one of them
    or the saving did not pass.
    """
    seconds = {line.step: line.seconds for line in lines if line.status == PASSED}
    if not {"generation", "dev gradient", "scoring", "save"} <= set(seconds):
        return None
    pace = {
        SAMPLING: seconds["generation"] / sampled.forward(shape),
        SCORING: seconds["scoring"] / scoring_flops(config, shape, trained, trained),
        TRAINING: seconds["dev gradient"] / gradient_flops(config, shape, trained),
    }
    cotrain = config.cotrain
    phases = phase_work(config, shape, parse_lengths(shape.name, cotrain))
    saved = seconds["save"] * (int(cotrain.generator.update) + int(cotrain.solver.update))
    iteration = iteration_seconds(phases, pace, overlap=False) + saved
    return Extrapolation(
        pace=pace,
        phases={**{phase.name: phase.seconds(pace) for phase in phases}, "save": saved},
        iteration=iteration,
        iterations=cotrain.iterations,
        hours=iteration * cotrain.iterations / 3600,
    )


def as_yaml(run: Extrapolation, setup: Setup) -> str:
    """Format the file that `infuser plan --measured` reads: utilisation of the dense rate by kind of work."""
    # YAML would read 1e-05 as a string; its writer adds a point.
    values = {kind: float(f"{1 / (run.pace[kind] * setup.rate(kind)):.4g}") for kind in KINDS}
    return f"# measured by a rehearsal on {setup.cluster.label}\n{yaml.safe_dump(values, sort_keys=False)}"


def as_json(lines: Sequence[Line], run: Extrapolation | None, setup: Setup | None) -> dict[str, Any]:
    """The result as JSON values, with the planned memory in bytes by role."""
    return {
        "failed": [line.step for line in lines if line.status == FAILED],
        "lines": [asdict(line) for line in lines],
        "run": asdict(run) if run else None,
        "planned_bytes": {role.role: role.total for role in setup.memory} if setup else {},
    }


def as_text(lines: Sequence[Line], run: Extrapolation | None, setup: Setup | None) -> str:
    """The result as text: table, failures, extrapolated hours, and the planned memory."""
    measured = any(line.accelerator is not None for line in lines)
    rows = [
        {
            "step": line.step,
            "status": line.status,
            "seconds": round(line.seconds, 2),
            "tokens/s": f"{line.tokens / line.seconds:,.0f}" if line.tokens and line.seconds else "",
            "GB": "" if line.gigabytes is None else f"{line.gigabytes:.2f}",
            **({"GPU GB": "" if line.accelerator is None else f"{line.accelerator:.2f}"} if measured else {}),
            "found": "" if line.status == FAILED else line.told,
        }
        for line in lines
    ]
    text = [f"{line.step} failed: {line.told}" for line in lines if line.status == FAILED]
    if setup is not None:
        planned = ", ".join(f"{role.role} {role.total / 1e9:.2f} GB" for role in setup.memory)
        text.append(f"planned memory of one accelerator or rank, without the libraries' own: {planned}")
    if run is not None:
        text += [
            f"by these seconds: {run.iteration:,.1f} s an iteration, "
            f"{run.hours:,.2f} h for {run.iterations} iterations",
            "  measured seconds per FLOP x FLOPs of the iteration (formula over mean lengths, as in `infuser plan`);",
            "  the rehearsed batch is small, and large ones take less time per token",
        ]
    counts = {status: sum(line.status == status for line in lines) for status in (PASSED, FAILED, UNREACHED)}
    text.append("; ".join(f"{count} {status}" for status, count in counts.items() if count))
    return "\n".join([format_rows(rows, width=100), *text])
