"""Influence scores of questions on sharded weights (eq:adamw_moments).

A question that fits into a micro-batch is computed by one rank alone: its gradient is formed layer by layer as in the
fast probe, against moments and a reference that are gathered with the layer, and is never reduced. A larger question
is spread over all ranks, its gradient reduced once to its owners, and scored shard by shard.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from infuser_core.engines.deepspeed.shard import Gathered
from infuser_core.engines.deepspeed.zero import Zero
from infuser_core.engines.probe.fast import BatchScores, LayerProbe
from infuser_core.engines.probe.sums import Preconditioner, Workspace
from infuser_core.engines.training.optimizers.adamw import AdamW
from infuser_core.engines.training.packing import Segment
from infuser_core.protocols import Objective, TrainRow


class ShardProbe(LayerProbe):
    """Scores questions on one rank, many in a micro-batch. Create it before DeepSpeed shards the weights."""

    def run(
        self,
        zero: Zero,
        adamw: AdamW,
        batches: Sequence[list[Segment] | None],
        reference: Tensor,
        objective: Objective,
        note: Callable[[list[Segment], BatchScores], None],
    ) -> dict[int, Tensor]:
        """Compute [<ref, Gamma>, <ref, g>, |Gamma|^2, |g|^2] of every question by place; g is the gradient of -J.

        All ranks pass the same number of micro-batches, padded with None. `note` is called for each one that is not
        padding.
        """
        shard = zero.shard
        direction = Preconditioner(
            reference=Gathered(shard, reference), second=Gathered(shard, adamw.second), form=adamw.form
        )
        workspace = Workspace(dtype=torch.float32, device=self._packer.device)
        sums: dict[int, Tensor] = {}

        def backward(loss: Tensor) -> None:
            # Recorded layers produce no gradients, and DeepSpeed's hooks must not wait for any.
            torch.autograd.grad(loss, zero.parameters, allow_unused=True)

        for segments in batches:
            with zero.sharded_after():
                scored = self.score(
                    segments or [padding()], objective, direction, workspace, forward=zero.recorded, backward=backward
                )
            if segments is not None:
                sums |= dict(zip(scored.places, scored.sums_Q4, strict=True))
                note(segments, scored)
        return sums


def padding() -> Segment:
    """Build a segment that adds nothing, for ranks without work: all ranks must enter the same collectives."""
    row = TrainRow(token_ids=[0], advantage=0.0, sampler_logprobs=[0.0])
    return Segment(group=0, group_id="", prompt=[0], places=[0], rows=[row], group_size=1)
