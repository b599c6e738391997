"""Compute of co-training, counted in FLOPs of the model: sampling from the rollouts, trainers from their recorded passes.

A sampled token counts one forward pass and a prompt once per group, as in `infuser_core/engines/step_costs.py`.
Validation and evaluation are no part of it.
"""

from contextlib import closing
from itertools import accumulate
from pathlib import Path

from infuser_core.memory.shape import Shape
from infuser_core.store.store import Store
from infuser_core.store.views import Lens

_SAMPLED = """select iteration, len(any_value(prompt_token_ids)) as prompt, list(len(token_ids)) as lengths
    from rollouts where phase in ('rollout_dev', 'generate_questions', 'rollout_questions')
    group by iteration, phase, group_id order by all"""
_TRAINED = "select iteration, sum(flops) as flops from step_costs group by iteration order by all"


def flops_by_iteration(root: Path, run: str, shape: Shape) -> dict[int, float]:
    """FLOPs of each iteration of a run."""
    with closing(Lens(Store(root), runs=[run])) as lens:
        flops = {int(row["iteration"]): float(row["flops"]) for row in lens.query(_TRAINED)}
        for row in lens.query(_SAMPLED):
            # An iteration without a question trains nothing.
            at = int(row["iteration"])
            flops[at] = flops.get(at, 0.0) + shape.group_flops(int(row["prompt"]), row["lengths"])
    return flops


def cumulative(flops: dict[int, float]) -> list[float]:
    """FLOPs spent after 0, 1, 2, ... iterations."""
    return [0.0, *accumulate(flops[iteration] for iteration in sorted(flops))]
