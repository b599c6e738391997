"""The objective of a packed micro-batch, and the report that its sums add up to."""

from collections.abc import Sequence

import torch
from torch import Tensor

from infuser_core.algorithm.objective import ObjectiveTerms, clipped_objective
from infuser_core.engines.packing import MicroBatch
from infuser_core.engines.protocols import Objective, StepReport, TrainGroup


def batch_terms(logprobs_S: Tensor, batch: MicroBatch, objective: Objective, denominator: int) -> ObjectiveTerms:
    """-J summed over the micro-batch and divided by `denominator` (eq:unified_obj)."""
    return clipped_objective(
        logprobs_S,
        advantages_S=batch.advantages_S,
        weights_S=batch.weights_S / (objective.length_norm * denominator),
        sampler_logprobs_S=batch.sampler_logprobs_S,
        old_logprobs_S=batch.old_logprobs_S,
        clip_low=objective.clip_low,
        clip_high=objective.clip_high,
        dual_clip=objective.dual_clip,
        tis_cap=objective.tis_cap,
        tis_form=objective.tis_form,
    )


class ReportSums:
    """Adds up what the micro-batches of one pass report."""

    def __init__(self) -> None:
        self.tokens = 0
        self._sums: list[Tensor] = []

    def add(self, terms: ObjectiveTerms) -> None:
        """One micro-batch."""
        self._sums.append(torch.stack([each.double() for each in (terms.loss, terms.clipped, terms.ratio, terms.tis)]))
        self.tokens += terms.tokens

    def report(self, groups: Sequence[TrainGroup], *, divisor: int = 1) -> StepReport:
        """The whole pass; token means are over computed tokens, the loss is divided by `divisor`."""
        sums = torch.stack(self._sums).sum(0).tolist() if self._sums else (0.0, 0.0, 0.0, 0.0)
        loss, clipped, ratio, tis = sums
        return StepReport(
            loss=loss / divisor,
            num_tokens=sum(len(row.token_ids) for group in groups for row in group.rows),
            clip_fraction=clipped / max(1, self.tokens),
            mean_ratio=ratio / self.tokens if self.tokens else 1.0,
            mean_tis=tis / self.tokens if self.tokens else 1.0,
        )
