"""Compute logits in fp32 or wider from an output layer of any dtype, e.g. bf16.

bf16 rounds logits by up to 2^-9 of their size: log-probabilities move by hundredths of a nat,
and two passes over the same weights disagree about which tokens an importance ratio clips.
"""

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel


class OutputHead:
    """The output layer of a sampling model. On a CPU, a bf16 weight is converted to fp32 once, at the start."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._layer = model.get_output_embeddings()
        self._wide_weight: Tensor | None = None
        # A subclass of Linear may do more than multiply, so it is called unchanged.
        if type(self._layer) is nn.Linear and self._layer.weight.dtype != wide_dtype(self._layer.weight):
            weight = self._layer.weight
            self._wide_weight = weight.to(wide_dtype(weight)) if weight.device.type == "cpu" else weight

    def logits(self, hidden: Tensor) -> Tensor:
        """Compute logits [R, V] from final hidden states [R, H]."""
        if self._wide_weight is None:
            logits: Tensor = self._layer(hidden)
            return logits
        return wide_logits(hidden.to(self._wide_weight.dtype), self._wide_weight, self._layer.bias)


def product(left: Tensor, right: Tensor, dtype: torch.dtype, *, out: Tensor | None = None) -> Tensor:
    """Compute left @ right, summed and returned in `dtype`, e.g. fp32 for bf16 operands."""
    if left.dtype == dtype:
        return torch.mm(left, right, out=out)
    if left.device.type == "cpu":
        return torch.mm(left.to(dtype), right.to(dtype), out=out)
    if out is None:
        return torch.mm(left, right, out_dtype=dtype)
    return torch.mm(left, right, out_dtype=dtype, out=out)


def wide_logits(hidden: Tensor, weight: Tensor, bias: Tensor | None, *, out: Tensor | None = None) -> Tensor:
    """Compute hidden @ weight^T + bias, [S, W], in fp32 or wider."""
    dtype = wide_dtype(weight)
    if bias is None:
        return product(hidden, weight.t(), dtype, out=out)
    if weight.dtype == dtype:
        return torch.addmm(bias.to(dtype), hidden, weight.t(), out=out)
    return product(hidden, weight.t(), dtype, out=out).add_(bias)


def wide_dtype(tensor: Tensor) -> torch.dtype:
    """Return the dtype for logits and sums over the vocabulary: fp32 or wider, since bf16 loses too much."""
    return torch.promote_types(tensor.dtype, torch.float32)
