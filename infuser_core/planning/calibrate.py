"""The constants of one's own machine: least squares in log space on phase timings of one's own runs.

What a run does not show, such as the links of a single device, stays at the published runs' value: a constant that is
off by its factor costs as much as one phase off by CELL.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from statistics import fmean, median

import numpy as np
from scipy.optimize import least_squares

from infuser_core.capacity.asked import Asked
from infuser_core.capacity.phases import ORDER, phases_of
from infuser_core.capacity.volume import within
from infuser_core.config.overlays import validate
from infuser_core.errors import UsageError
from infuser_core.memory.hardware import Efficiency
from infuser_core.store.journal import Entry, Journal
from infuser_core.store.recipe import read_record
from infuser_core.store.runs import find_run, read_config
from infuser_core.store.store import Store
from infuser_core.terminal import table

CELL = 0.05
"""Deviation of a phase that weighs as much as one factor of a constant."""
FACTOR = 30.0
"""Factor by which a constant may easily differ from the published runs': other machines are other machines."""
BOUNDS = {
    "matmul": (1e-5, 1.0),
    "memory": (1e-5, 1.0),
    "link": (1e-5, 1.0),
    "decode_step": (1e-7, 10.0),
    "layer_pass": (1e-8, 1.0),
    "stage": (1e-4, 600.0),
}
"""Bounds of each constant: shares up to one, seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """One run as it was timed."""

    run: str
    """Its name."""
    asked: Asked
    """The run and its hardware, with its own mean lengths."""
    seconds: Mapping[str, float]
    """Median seconds by phase."""


RESPONSES = {"rollout_dev": "dev_response", "rollout_questions": "solver_response"}
"""Phases whose summary counts response tokens, and the length that they tell."""


def observed(root: Path, name: str, gpus: str) -> Observed:
    """The run on `gpus`. Raises UsageError for a run of which no phase ran to its end."""
    run = find_run(root, name)
    entries = [each for each in Journal(root, run).entries() if each.state == "ran" and each.phase in ORDER]
    # Loading and compiling belong to a start, not to an iteration.
    first = min((each.iteration for each in entries), default=0)
    settled = [each for each in entries if each.iteration > first] or entries
    if not settled:
        raise UsageError(f"--calibrate {name}: no phase of it ran", hint="give a run that computed an iteration")
    seconds = {
        phase: median(each.seconds for each in settled if each.phase == phase)
        for phase in ORDER
        if any(each.phase == phase for each in settled)
    }
    return Observed(run=run, asked=_measured(Store(root), run, gpus, settled), seconds=seconds)


def _measured(store: Store, run: str, gpus: str, entries: list[Entry]) -> Asked:
    """The question with the run's own mean lengths and share of valid questions, where its summaries tell them."""
    config = validate(read_config(store.root, run))
    asked = Asked.of(config, gpus)
    told: dict[str, list[float]] = {}
    for entry in entries:
        manifest = read_record(store.folder(entry.key))
        summary, rows = manifest.summary, manifest.rows.get("rollouts", 0)
        if entry.phase in RESPONSES and rows:
            told.setdefault(RESPONSES[entry.phase], []).append(max(1.0, summary["tokens"] / rows))
        if entry.phase == "generate_questions" and summary.get("written"):
            told.setdefault("valid", []).append(summary["valid"] / summary["written"])
    lengths = replace(asked.lengths, **{name: fmean(values) for name, values in told.items()})
    return replace(asked, lengths=within(lengths, config.cotrain))


@dataclass(frozen=True, slots=True, kw_only=True)
class Residual:
    """One phase of one run."""

    run: str
    """Run."""
    phase: str
    """Phase."""
    measured: float
    """Seconds it took."""
    ours: float
    """Seconds of the model."""

    @property
    def error(self) -> float:
        """Relative error."""
        return self.ours / self.measured - 1


def fitted(observed: Sequence[Observed], start: Efficiency) -> Efficiency:
    """The constants that the timings and `start` agree on best."""
    names = [field.name for field in fields(Efficiency)]
    bounds = np.log([BOUNDS[name] for name in names]).T
    first = np.clip(np.log([getattr(start, name) for name in names]), bounds[0] + 1e-6, bounds[1] - 1e-6)

    def errors(logarithms: np.ndarray) -> np.ndarray:
        rows = residuals(observed, _efficiency(names, logarithms))
        cells = [np.log(row.ours / row.measured) / CELL for row in rows]
        return np.concatenate([cells, (logarithms - first) / np.log(FACTOR)])

    solved = least_squares(errors, first, bounds=tuple(bounds), diff_step=1e-3, max_nfev=200)
    return _efficiency(names, solved.x)


def residuals(observed: Sequence[Observed], efficiency: Efficiency) -> list[Residual]:
    """Every timed phase that the model knows."""
    found = []
    for each in observed:
        ours = {phase.name: phase.seconds for phase in phases_of(replace(each.asked, efficiency=efficiency))}
        found += [
            Residual(run=each.run, phase=name, measured=seconds, ours=ours[name])
            for name, seconds in each.seconds.items()
            if seconds > 0 and ours.get(name, 0.0) > 0
        ]
    return found


def as_text(efficiency: Efficiency, start: Efficiency, rows: Sequence[Residual]) -> str:
    """Constants beside the published runs', and every phase beside the model."""
    before, after = asdict(start), asdict(efficiency)
    constants = [{"constant": name, "published runs": before[name], "these runs": after[name]} for name in before]
    phases = [
        {
            "run": row.run,
            "phase": row.phase,
            "measured, s": row.measured,
            "model, s": row.ours,
            "error": f"{row.error:+.0%}",
        }
        for row in rows
    ]
    return f"{table(constants)}\n\n{table(phases)}"


def _efficiency(names: Sequence[str], logarithms: np.ndarray) -> Efficiency:
    return Efficiency(**{name: float(value) for name, value in zip(names, np.exp(logarithms), strict=True)})
