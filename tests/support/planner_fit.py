"""The fit behind `capacity/constants.csv`: least squares on the paper's wall-clock table, held near what is known.

Sixteen cells, six constants, and lengths that the paper does not publish: the fit says which constants are consistent
with the table, and `left_out` how well those of one model predict the other.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
from published_schedule import published_phases
from scipy.optimize import least_squares

from infuser_core.capacity.asked import Asked
from infuser_core.config.overlays import load
from infuser_core.memory.hardware import Efficiency
from infuser_core.report.paper_numbers import cells

ROWS = {
    "Dev reference rollout": "rollout_dev",
    "Generator rollout": "generate_questions",
    "Solver rollout on generated questions": "rollout_questions",
    "Dev reference gradient": "dev_gradient",
    "Influence scoring": "score_influence",
    "Generator update": "update_generator",
    "Solver update": "update_solver",
    "Other (glue, logging, and I/O)": "other",
}
"""Rows of the wall-clock table and our phases."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is known of a constant beforehand."""

    value: float
    """Usual value."""
    factor: float
    """One standard deviation, as a factor."""
    highest: float = math.inf
    """What cannot be exceeded."""


BEFOREHAND = {
    # Trainers of this size report 10 to 40 % of the dense rate.
    "matmul": Known(value=0.15, factor=2.0, highest=0.6),
    "memory": Known(value=0.6, factor=1.2, highest=0.95),
    # Bus bandwidth of collectives over the data sheet's link.
    "link": Known(value=0.6, factor=1.3, highest=0.95),
    "decode_step": Known(value=0.009, factor=2.0),
    "layer_pass": Known(value=0.0005, factor=2.5),
    "stage": Known(value=1.2, factor=2.0),
}
"""Nothing here decides where the table does: a deviation of one factor costs as much as one cell off by 8 %."""
CELL = 0.08
"""Deviation of a cell that weighs as much as one factor of a constant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Residual:
    """One cell of the table beside the model's."""

    model: str
    """Configuration."""
    phase: str
    """Phase, `other`, or `total`."""
    paper: float
    """Seconds in the table."""
    ours: float
    """Seconds of the model."""

    @property
    def error(self) -> float:
        """Relative error."""
        return self.ours / self.paper - 1


def measured(anchor: str) -> dict[str, float]:
    """The paper's seconds per iteration, by phase and `total`."""
    column = [cell for cell in cells() if (cell.table, cell.anchor, cell.column) == ("wall_clock", anchor, "s/iter")]
    found = {ROWS[cell.row]: float(cell.text) for cell in column if cell.row in ROWS}
    return found | {"total": float(next(cell.text for cell in column if cell.row == "Full iteration"))}


def anchors(configs: Sequence[Path]) -> dict[str, Asked]:
    """The plans that the table belongs to, by the paper's name of their anchor."""
    loaded = [load([path]) for path in configs]
    return {str(getattr(config.anchor, "repo", "")).rpartition("/")[2]: Asked.of(config, "8xH100") for config in loaded}


def residuals(asked: Mapping[str, Asked], efficiency: Efficiency) -> list[Residual]:
    """Every cell and both totals."""
    found = []
    for anchor, plan in asked.items():
        ours = {phase.name: phase.seconds for phase in published_phases(replace(plan, efficiency=efficiency))}
        ours["total"] = sum(ours.values())
        found += [
            Residual(model=anchor, phase=phase, paper=seconds, ours=ours[phase])
            for phase, seconds in measured(anchor).items()
        ]
    return found


def refit(asked: Mapping[str, Asked]) -> Efficiency:
    """The constants that the table and what is known beforehand agree on best."""
    names = [field.name for field in fields(Efficiency)]
    start = np.log([BEFOREHAND[name].value for name in names])
    widths = np.log([BEFOREHAND[name].factor for name in names])
    tops = np.log([BEFOREHAND[name].highest for name in names])

    def errors(logarithms: np.ndarray) -> np.ndarray:
        found = residuals(asked, _efficiency(names, logarithms))
        cells = [math.log(row.ours / row.paper) / CELL for row in found if row.phase != "total"]
        return np.concatenate([cells, (logarithms - start) / widths])

    bounds = (np.full(len(names), -np.inf), tops)
    solved = least_squares(errors, start, bounds=bounds, diff_step=1e-3, max_nfev=25)
    return _efficiency(names, solved.x)


def _efficiency(names: Sequence[str], logarithms: np.ndarray) -> Efficiency:
    return Efficiency(**{name: float(value) for name, value in zip(names, np.exp(logarithms), strict=True)})


def left_out(asked: Mapping[str, Asked]) -> list[Residual]:
    """Every cell predicted with constants fitted on the other model."""
    found = []
    for anchor in asked:
        others = {name: plan for name, plan in asked.items() if name != anchor}
        found += residuals({anchor: asked[anchor]}, refit(others))
    return found


def root_mean_square(rows: Sequence[Residual]) -> float:
    """Of the logarithmic errors of the cells."""
    errors = [math.log(row.ours / row.paper) for row in rows if row.phase not in ("total", "other")]
    return math.sqrt(sum(error * error for error in errors) / len(errors))
