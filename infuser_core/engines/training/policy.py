"""Log-probabilities of packed responses under a transformers model, with gradients.

Shapes: _T tokens of a micro-batch, _S response tokens, _V vocabulary.
"""

from contextlib import AbstractContextManager, nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from infuser_core.engines.hf.causal_lm import hidden_states
from infuser_core.engines.training.packing import MicroBatch

LOGIT_CELLS = 1 << 25
"""Logits held at a time: 128 MiB in fp32. More are computed in chunks, and again in backward."""


class ModelPolicy:
    """loss.Policy: a model in its master dtype that computes in `compute_dtype`."""

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
