"""Log-probabilities of target tokens, with the output layer's gradient formed question by question.

Forward keeps the logits' log-sum, and the logits themselves where they are few. Backward works tile by tile, a tile
being one question's tokens by some rows of the vocabulary, and computes again what was not kept. Shapes: _S response
tokens, _H hidden, _V vocabulary, _W a tile's vocabulary rows.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from infuser_core.engines.probe.recorder import HeadNames
from infuser_core.engines.probe.sums import QuestionSums, product

CPU_CELLS = 1 << 17
"""Logits held at a time on a CPU."""

CPU_ROWS = 64
"""Fewest tokens or vocabulary rows of a tile on a CPU: thinner products are slow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetHead:
    """An output layer and where its gradient goes."""

    layer: nn.Linear
    """The layer."""
    names: HeadNames
    """Its parameters' names."""
    compute_dtype: torch.dtype
    """Dtype of its products."""
    cells: int
    """Logits of a tile."""
    kept_cells: int
    """Logits of a micro-batch that are kept for backward; more are computed twice."""

    def logprobs(self, hidden_SH: Tensor, targets_S: Tensor, temperature: float, sums: QuestionSums) -> Tensor:
        """log pi(target) at `temperature`, [S], in the weight's dtype."""
        output: Tensor = _TargetLogprobs.apply(
            hidden_SH.to(self.compute_dtype), self.layer.weight, self.layer.bias, targets_S, temperature, self, sums
        )
        return output


class _TargetLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden_SH: Tensor,
        weight_VH: Tensor,
        bias_V: Tensor | None,
        targets_S: Tensor,
        temperature: float,
        head: TargetHead,
        sums: QuestionSums,
    ) -> Tensor:
        weight = weight_VH.to(head.compute_dtype)
        keep = len(hidden_SH) * len(weight) <= head.kept_cells
        height = max(CPU_ROWS, head.cells // len(weight))
        sizes = [each.stop - each.start for each in sums.spans.responses] if keep else height
        tiles = Tiles(temperature, like=weight_VH)
        logprobs_S, logsums_S = (weight_VH.new_empty(len(hidden_SH)) for _ in range(2))
        kept: list[Tensor] = []
        parts = (each.split(sizes) for each in (hidden_SH, targets_S, logprobs_S, logsums_S))
        for hidden, targets, logprobs, logsums in zip(*parts, strict=True):
            logits = tiles.logits(hidden, weight, bias_V, keep=keep)
            torch.logsumexp(logits, 1, out=logsums)
            torch.sub(logits.gather(1, targets[:, None])[:, 0], logsums, out=logprobs)
            if keep:
                kept.append(logits)
        ctx.save_for_backward(hidden_SH, weight_VH, bias_V, targets_S, logsums_S)
        ctx.temperature, ctx.head, ctx.sums, ctx.kept = temperature, head, sums, kept
        return logprobs_S

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        hidden_SH, weight_VH, bias_V, targets_S, logsums_S = ctx.saved_tensors
        weight = weight_VH.to(ctx.head.compute_dtype)
        result = torch.empty_like(hidden_SH)
        for question, span in enumerate(ctx.sums.spans.responses):
            slopes = gradients[0][span] / ctx.temperature
            tokens = (hidden_SH[span], targets_S[span], logsums_S[span], slopes)
            result[span] = _question_backward(ctx, question, weight, bias_V, *tokens)
        return result, None, None, None, None, None, None


def _question_backward(
    ctx: Any,
    question: int,
    weight_VH: Tensor,
    bias_V: Tensor | None,
    hidden_SH: Tensor,
    targets_S: Tensor,
    logsums_S: Tensor,
    slopes_S: Tensor,
) -> Tensor:
    """The question's gradient of its hidden states; that of its weight rows goes to the sums."""
    head, sums, wide = ctx.head, ctx.sums, logsums_S.dtype
    tiles = Tiles(ctx.temperature, like=logsums_S)
    result, share = (torch.zeros_like(hidden_SH, dtype=wide) for _ in range(2))
    right_SH = hidden_SH.to(wide) if hidden_SH.device.type == "cpu" else hidden_SH
    height = min(sums.piece_rows(*weight_VH.shape), max(CPU_ROWS, head.cells // len(hidden_SH)))
    for start in range(0, len(weight_VH), height):
        rows = slice(start, min(len(weight_VH), start + height))
        if ctx.kept:
            logits = ctx.kept[question][:, rows]
        else:
            bias = None if bias_V is None else bias_V[rows]
            logits = tiles.logits(hidden_SH, weight_VH[rows], bias)
        # d logprob / d logits is one at the target, minus the probabilities.
        left_SW = logits.sub_(logsums_S[:, None]).exp_().mul_(-slopes_S[:, None])
        inside = (targets_S >= rows.start) & (targets_S < rows.stop)
        places = (targets_S - rows.start).clamp_(0, left_SW.shape[1] - 1)
        left_SW.scatter_add_(1, places[:, None], (slopes_S * inside)[:, None])
        if head.names.bias is not None:
            sums.add_head_bias(head.names.bias, question, rows, left_SW)
        left_SW = left_SW.to(head.compute_dtype)
        result += product(left_SW, weight_VH[rows], wide, out=share)
        sums.add_head_rows(head.names.weight, question, rows, left_SW, right_SH, hold=head.names.tied)
    return result


class Tiles:
    """Logits of one tile after the other, in memory taken once: a C allocator fragments where tiles come and go."""

    def __init__(self, temperature: float, *, like: Tensor) -> None:
        self._temperature = temperature
        self._like = like
        self._buffers: dict[torch.dtype, Tensor] = {}

    def logits(self, hidden: Tensor, weight: Tensor, bias: Tensor | None, *, keep: bool = False) -> Tensor:
        """Logits over the temperature in the dtype of `like`; the next tile overwrites them, but for those to keep."""
        shape = (len(hidden), len(weight))
        logits = self._room(shape, weight.dtype)
        if bias is None:
            torch.mm(hidden, weight.t(), out=logits)
        else:
            torch.addmm(bias.to(weight.dtype), hidden, weight.t(), out=logits)
        if logits.dtype != self._like.dtype:
            logits = self._room(shape, self._like.dtype).copy_(logits)
        if keep:
            self._buffers.clear()
        return logits.div_(self._temperature)

    def _room(self, shape: tuple[int, int], dtype: torch.dtype) -> Tensor:
        wanted = shape[0] * shape[1]
        if dtype not in self._buffers or self._buffers[dtype].numel() < wanted:
            self._buffers[dtype] = self._like.new_empty(wanted, dtype=dtype)
        return self._buffers[dtype][:wanted].view(shape)
