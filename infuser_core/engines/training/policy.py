"""Log-probabilities of packed responses with gradients, and the objective of a micro-batch.

Shapes: _T tokens of a micro-batch, _S response tokens, _V vocabulary.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from infuser_core.algorithm.objective import ObjectiveTerms, clipped_objective
from infuser_core.engines.hf.causal_lm import hidden_states
from infuser_core.engines.protocols import Objective, StepReport, TrainGroup
from infuser_core.engines.training.packing import MicroBatch

LOGIT_CELLS = 1 << 25
"""Logits held at a time: 128 MiB in fp32. More are computed in chunks, and again in backward."""


class Policy:
    """A model in its master dtype that computes in `compute_dtype`."""

    def __init__(self, model: PreTrainedModel, *, compute_dtype: torch.dtype) -> None:
        self.model = model
        self.compute_dtype = compute_dtype
        self._head: nn.Module = model.get_output_embeddings()

    def logprobs(self, batch: MicroBatch, *, temperature: float) -> Tensor:
        """log pi(token) of every response token, logits divided by `temperature`, [S]."""
        with self._precision():
            predictors = self.predictors(batch)
            rows = max(1, LOGIT_CELLS // self.model.config.get_text_config().vocab_size)
            if len(predictors) <= rows:
                return self._select(predictors, batch.targets_S, temperature)
            chunks = zip(predictors.split(rows), batch.targets_S.split(rows), strict=True)
            return torch.cat([checkpoint(self._select, *chunk, temperature, use_reentrant=False) for chunk in chunks])

    def predictors(self, batch: MicroBatch) -> Tensor:
        """Final hidden state of the token before every response token, [S, H]."""
        with self._precision():
            hidden = hidden_states(self.model, batch.input_ids, batch.position_ids, batch.layout)
            return hidden[0].index_select(0, batch.predictors_S)

    def _select(self, hidden: Tensor, targets_S: Tensor, temperature: float) -> Tensor:
        logits_SV = self._head(hidden)
        # fp32 from here on: a sum over the vocabulary loses too much in bf16.
        logits_SV = (logits_SV.float() if logits_SV.dtype == torch.bfloat16 else logits_SV) / temperature
        return -F.cross_entropy(logits_SV, targets_S, reduction="none")

    def _precision(self) -> AbstractContextManager[object]:
        if self.compute_dtype == torch.bfloat16:
            return torch.autocast(self.model.device.type, dtype=torch.bfloat16)
        return nullcontext()


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
