"""Bytes that a run writes: checkpoints of both roles and the dev gradient, in all and after tidying up."""

from dataclasses import dataclass

from infuser_core.capacity.shape import Shape
from infuser_core.config import RunConfig
from infuser_core.rewards.find import load

FULL, WEIGHTS, GRADIENT = 12.0, 4.0, 4.0
"""Bytes per parameter: fp32 weights with both moments, weights alone, a kept gradient."""
KEPT_FULL, KEPT_EVERY = 2, 5
"""Retention: the last two checkpoints whole, of every fifth the weights, the selected one whole; gradients stay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """Bytes in the store."""

    checkpoint: float
    """One role's checkpoint."""
    per_iteration: float
    """Checkpoints and dev gradient of one iteration."""
    in_all: float
    """Of all iterations, anchor included, if nothing is removed."""
    after_gc: float
    """What is left of them after `infuser gc`."""


def files_of(config: RunConfig, shape: Shape) -> Files:
    """What the run writes."""
    cotrain, parameters = config.cotrain, float(shape.parameters)
    roles = int(cotrain.solver.update) + int(cotrain.generator.update)
    influence = cotrain.generator.update and not cotrain.dev_only and load(cotrain.reward.name).needs_influence
    gradient = GRADIENT * parameters * (1 + int(cotrain.one_backward)) if influence else 0.0
    per_iteration = roles * FULL * parameters + gradient
    full = min(cotrain.iterations, KEPT_FULL)
    thinned = max(0, cotrain.iterations - full) // KEPT_EVERY
    selected = int(cotrain.iterations > full)
    kept = roles * ((full + selected) * FULL + thinned * WEIGHTS) * parameters + cotrain.iterations * gradient
    return Files(
        checkpoint=FULL * parameters,
        per_iteration=per_iteration,
        in_all=FULL * parameters + cotrain.iterations * per_iteration,
        after_gc=FULL * parameters + kept,
    )
