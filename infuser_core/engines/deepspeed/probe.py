"""Influence scores on sharded weights (eq:adamw_moments).

A question that fits into a micro-batch is computed by one rank alone: its gradient is formed layer by layer as in the
fast probe, against moments and a reference that are gathered with the layer, and is never reduced. A larger question
is spread over all ranks, its gradient reduced once to its owners, and scored shard by shard.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from infuser_core.algorithm.influence import partial_sums
from infuser_core.algorithm.objective import ObjectiveTerms
from infuser_core.engines.deepspeed.shard import Gathered, Scattered
from infuser_core.engines.deepspeed.zero import Zero
from infuser_core.engines.probe.recorder import Recorder
from infuser_core.engines.probe.spans import spans_of
from infuser_core.engines.probe.sums import Accumulator, PieceScorer, Preconditioner, QuestionSums, Workspace
from infuser_core.engines.probe.target_head import CPU_CELLS, TargetHead
from infuser_core.engines.protocols import Objective, TrainRow
from infuser_core.engines.training.adamw import AdamW
from infuser_core.engines.training.packing import Packer, Segment
from infuser_core.engines.training.policy import LOGIT_CELLS, Policy, batch_terms

Note = Callable[[Sequence[Segment], Tensor, ObjectiveTerms], None]
"""Hears of every micro-batch: its segments, log-probabilities [S] and terms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Against:
    """What questions are scored against."""

    reference: Tensor
    """This rank's shard of the reference direction."""
    objective: Objective
    """Constants of the loss."""
    denominator: int | None
    """Where given, the gradient of -J over it is accumulated on the way."""


class LayerProbe:
    """Questions of one rank, many in a micro-batch. Raises EngineError for a parameter kind it cannot handle."""

    def __init__(self, policy: Policy, packer: Packer) -> None:
        self._packer = packer
        # Looked at before DeepSpeed takes the weights apart.
        self._recorder = Recorder(policy.model, compute_dtype=policy.compute_dtype)
        layer = policy.model.get_output_embeddings()
        assert isinstance(layer, nn.Linear)
        self._head = TargetHead(
            layer=layer,
            names=self._recorder.head,
            compute_dtype=policy.compute_dtype,
            cells=CPU_CELLS if packer.device.type == "cpu" else LOGIT_CELLS,
            kept_cells=LOGIT_CELLS,
        )

    def run(
        self, zero: Zero, adamw: AdamW, batches: Sequence[list[Segment] | None], against: Against, note: Note
    ) -> dict[int, Tensor]:
        """[<ref, Gamma>, <ref, g>, |Gamma|^2, |g|^2] of every question by its place, g the gradient of -J.

        All ranks bring the same number of micro-batches; None stands for one that only keeps the others company.
        """
        options, shard = adamw.options, zero.shard
        preconditioner = Preconditioner(
            reference=Gathered(shard, against.reference),
            second=Gathered(shard, adamw.second),
            step=adamw.steps,
            beta2=options.beta2,
            eps=options.eps,
        )
        workspace = Workspace(dtype=torch.float32, device=self._packer.device)
        found: dict[int, Tensor] = {}
        for segments in batches:
            gradient = None if against.denominator is None else Scattered(shard, shard.gradient)
            scale = 0.0 if segments is None else 1.0 / (against.denominator or 1)
            accumulator = None if gradient is None else Accumulator(gradient=gradient, scale=scale)
            shown = segments or [company()]
            batch = self._packer.pack(shown, trim=True)
            spans = spans_of(shown, batch, trim=True)
            scorer = PieceScorer(preconditioner, workspace, len(spans))
            sums = QuestionSums(spans, scorer, accumulator=accumulator)
            with zero.settled(), self._recorder.recording(sums):
                logprobs_S = zero.recorded(batch, against.objective.temperature, self._head, sums)
                terms = batch_terms(logprobs_S, batch, against.objective, 1)
                # Recorded layers leave no gradients behind, and DeepSpeed's hooks must not wait for any.
                torch.autograd.grad(terms.loss, zero.parameters, allow_unused=True)
            if gradient is not None:
                gradient.flush()
            if segments is not None:
                found |= dict(zip(spans.places, scorer.totals(), strict=True))
                note(segments, logprobs_S, terms)
        return found


def shard_sums(gradient: Tensor, zero: Zero, adamw: AdamW, reference: Tensor) -> Tensor:
    """The four sums of one question whose gradient lies sharded over the ranks. All ranks call it."""
    options, step = adamw.options, adamw.steps
    parts = [
        partial_sums(g, ref, v, step=step, beta2=options.beta2, eps=options.eps)
        for g, ref, v in zero.shard.chunks(gradient, reference, adamw.second)
    ]
    return zero.shard.total(torch.stack(parts).sum(0))


def company() -> Segment:
    """A segment without weight: what a rank computes while others still have work, so that collectives meet."""
    row = TrainRow(token_ids=[0], advantage=0.0, sampler_logprobs=[0.0])
    return Segment(group=0, group_id="", prompt=[0], places=[0], rows=[row], group_size=1)
