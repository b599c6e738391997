"""Disk space of a run: bytes that it writes into the store, and bytes that remain after files are removed."""

from dataclasses import dataclass

from infuser_core.config.run import KeepSettings, RunConfig
from infuser_core.cotrain.reward import needs_influence
from infuser_core.memory.shape import Shape

WEIGHTS, GRADIENT = 4.0, 4.0
"""Bytes per parameter of fp32 weights and of a stored gradient."""
_GC = KeepSettings()
"""Checkpoints that `infuser gc` keeps; the selected checkpoint is also kept completely."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFiles:
    """Estimated bytes of a run's files in the store."""

    checkpoint: float
    """One role's checkpoint."""
    per_iteration: float
    """Checkpoints and dev gradient of one iteration."""
    in_all: float
    """Bytes of all iterations and of the anchor (the pre-trained base model), if nothing is removed."""
    after_gc: float
    """Bytes that remain after `infuser gc`."""
    peak: float
    """Maximum at any time, less what the run has removed itself if `store.keep` is set."""


def run_files(config: RunConfig, shape: Shape) -> RunFiles:
    """Estimate the sizes of a run's files from its settings and its model's shape."""
    cotrain, parameters = config.cotrain, float(shape.trained)
    base = WEIGHTS * shape.parameters if shape.adapters else 0.0
    checkpoint = WEIGHTS * parameters + shape.moment_bytes(cotrain.optimizer.name)
    roles = int(cotrain.solver.update) + int(cotrain.generator.update)
    gradient = GRADIENT * parameters if needs_influence(cotrain) else 0.0
    per_iteration = roles * checkpoint + gradient
    full = min(cotrain.iterations, _GC.full)
    thinned = max(0, cotrain.iterations - full) // _GC.weights_every
    selected = int(cotrain.iterations > full)
    retained = roles * ((full + selected) * checkpoint + thinned * WEIGHTS * parameters)
    in_all = base + checkpoint + cotrain.iterations * per_iteration
    most = _peak(config, roles * checkpoint, roles * WEIGHTS * parameters, gradient)
    return RunFiles(
        checkpoint=checkpoint,
        per_iteration=per_iteration,
        in_all=in_all,
        after_gc=base + checkpoint + retained,
        peak=base + checkpoint + most if config.store.keep else in_all,
    )


def _peak(config: RunConfig, checkpoint: float, thin: float, gradient: float) -> float:
    """Bytes, without the anchor's, at the end of the last iteration before removal: the maximum of the run.

    `checkpoint` and `thin`: bytes of the roles' checkpoints with and without moments. Of candidates for selection,
    the best one keeps its weights; with `within_noise`, every validated one does.
    """
    keep, iterations = config.store.keep, config.cotrain.iterations
    if keep is None:
        return 0.0
    whole = min(iterations, keep.full + 1)
    old = range(1, iterations - whole + 1)
    every = config.cotrain.validate_every
    weights = {number for number in old if keep.weights_every and number % keep.weights_every == 0}
    candidates = {number for number in old if number % every == 0} - weights
    best = len(candidates) if config.evaluate.selection == "within_noise" else min(1, len(candidates))
    return whole * checkpoint + (len(weights) + best) * thin + min(iterations, 1) * gradient
