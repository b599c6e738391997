"""Ranks of which one computes a micro-batch again and another does not are the local trainer that keeps everything."""

from pathlib import Path

import pytest
import torch
from distributed_tiny import BUDGET, LIMIT, error, local, ranks
from engine_tiny import OBJECTIVE, SHAPES, make_groups

from infuser_core.algorithm.score import cosine
from infuser_core.engines.deepspeed.split import split
from infuser_core.engines.training.packing import Packer
from infuser_core.protocols import TrainGroup
from infuser_core.schemas import Checkpoint

pytestmark = pytest.mark.distributed

KEPT = 16
"""Tokens up to which a micro-batch keeps its matrix products: one rank's first batch is shorter, the other's is not."""


def again(groups: list[TrainGroup]) -> list[list[bool]]:
    """Whether each micro-batch of each rank is computed again."""
    packer = Packer(token_budget=BUDGET, kept_tokens=KEPT, device=torch.device("cpu"), dtype=torch.float32)
    batches = [packer.plan([part.group for part in parts]) for parts in split(groups, 2)]
    return [[sum(each.num_tokens for each in batch) > KEPT for batch in rank] for rank in batches]


@pytest.mark.parametrize("stage", [2, 3])
def test_ranks_that_recompute_unlike_micro_batches_are_the_local_trainer(
    anchor: Checkpoint, tmp_path: Path, stage: int
) -> None:
    groups = make_groups([*SHAPES, (12, [20, 2]), (4, [3])], old=True)
    first, second = again(groups)
    assert any(one != other for one, other in zip(first, second, strict=False)), (first, second)
    pair = ranks(2, stage, gradient_checkpointing=KEPT), local(anchor)
    pair[0].load(anchor)
    cosines = []
    for trainer, name in zip(pair, "ab", strict=True):
        # The first passes record the order of weights, later ones fetch ahead by it.
        for _ in range(3):
            trainer.forward_backward(groups, OBJECTIVE, denominator=6)
        trainer.keep_gradient(tmp_path / name)
        trainer.zero_grad()
        found = trainer.probe(groups, OBJECTIVE, tmp_path / "a").similarities
        trainer.forward_backward(groups, OBJECTIVE, denominator=6)
        trainer.keep_gradient(tmp_path / f"scored-{name}")
        cosines.append([cosine(each.dot, each.direction_norm, each.reference_norm) for each in found])
        trainer.optim_step(1e-3)
        trainer.zero_grad()
        trainer.forward_backward(groups, OBJECTIVE, denominator=6)
        trainer.keep_gradient(tmp_path / f"after-{name}")
    pair[0].close()
    for kind in ("", "scored-", "after-"):
        assert error(tmp_path / f"{kind}a", tmp_path / f"{kind}b") < LIMIT
    assert cosines[0] == pytest.approx(cosines[1], abs=LIMIT)
