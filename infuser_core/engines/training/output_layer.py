"""Compute log-probabilities of target tokens from hidden states, tile by tile, without storing all logits.

Logits of a whole vocabulary are many times larger than any other tensor of a micro-batch. If they are few, they are
kept from forward to backward; otherwise they exist one tile at a time, some tokens by some rows of the vocabulary, and
are computed twice. Either way it is one call of an autograd function, so that ranks with different numbers of tokens
make the same calls.
Shapes: _S response tokens, _H hidden, _V vocabulary, _W a tile's vocabulary rows.
"""

from dataclasses import dataclass
from math import isqrt
from typing import Any

import torch
from torch import Tensor, nn

from infuser_core.engines.hf.output_head import product, wide_dtype, wide_logits
from infuser_core.memory.sizes import LOGIT_CELLS, logit_cells

CPU_CELLS = 1 << 17
"""Logits of a tile on a CPU."""

CPU_ROWS = 64
"""Fewest tokens or vocabulary rows of a tile on a CPU: thinner products are slow."""

BLOCK_CELLS = 1 << 18
"""Kept logits that elementwise passes process at a time: 1 MiB in fp32, so that they stay in the cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputLayer:
    """A linear output layer that computes log-probabilities and entropies in `compute_dtype`."""

    layer: nn.Linear
    compute_dtype: torch.dtype
    cells: int
    """Logits of a tile."""
    kept_cells: int = LOGIT_CELLS
    """Most logits of a micro-batch that are kept for backward; more are computed twice."""
    rows: int | None = None
    """Most tokens of a tile in backward; None for all of a micro-batch. Every tile rewrites the gradients of its tokens
    and of its vocabulary rows, so that tiles of all tokens rewrite more bytes per token the more tokens there are."""

    @classmethod
    def of(cls, layer: nn.Linear, compute_dtype: torch.dtype, device: torch.device) -> "OutputLayer":
        """Wrap a layer, with tiles of a size that fits the device on which it will compute."""
        if device.type == "cpu":
            return cls(layer=layer, compute_dtype=compute_dtype, cells=CPU_CELLS)
        cells = logit_cells(torch.cuda.get_device_properties(device).total_memory)
        # A square tile rewrites least.
        return cls(layer=layer, compute_dtype=compute_dtype, cells=cells, kept_cells=cells, rows=isqrt(cells))

    def logprobs(self, hidden_SH: Tensor, targets_S: Tensor, temperature: float) -> Tensor:
        """Compute log pi(target), [S], of logits over `temperature`."""
        return self._apply(hidden_SH, targets_S, temperature, entropy=False)[0]

    def with_entropy(self, hidden_SH: Tensor, targets_S: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        """Compute log pi(target) and the entropy of pi over the vocabulary, nats, each [S] and differentiable."""
        return self._apply(hidden_SH, targets_S, temperature, entropy=True)

    def _apply(
        self, hidden_SH: Tensor, targets_S: Tensor, temperature: float, *, entropy: bool
    ) -> tuple[Tensor, Tensor]:
        """Compute log-probabilities, and entropies if requested, else an empty tensor."""
        hidden_SH, weight_VH, bias_V = hidden_SH.to(self.compute_dtype), self.layer.weight, self.layer.bias
        inputs = (hidden_SH, weight_VH, bias_V, targets_S, temperature, entropy)
        result: tuple[Tensor, Tensor]
        if len(hidden_SH) * len(weight_VH) <= self.kept_cells:
            result = _WholeLogits.apply(*inputs)
        else:
            result = _TiledLogits.apply(*inputs, self)
        return result


class _WholeLogits(torch.autograd.Function):
    """All logits at once, in a buffer that backward turns into their gradient; same bits as torch's cross entropy."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_SH: Tensor,
        weight_VH: Tensor,
        bias_V: Tensor | None,
        targets_S: Tensor,
        temperature: float,
        entropy: bool,
    ) -> tuple[Tensor, Tensor]:
        logits_SV = wide_logits(hidden_SH, weight_VH.to(hidden_SH.dtype), bias_V)
        logprobs_S = logits_SV.new_empty(len(logits_SV))
        entropies: list[Tensor] = []
        for logits, targets, logprobs in _split_blocks(logits_SV, targets_S, logprobs_S):
            logits.div_(temperature)
            torch.ops.aten._log_softmax.out(logits, 1, False, out=logits)
            torch.gather(logits, 1, targets[:, None], out=logprobs[:, None])
            if entropy:
                entropies.append(_entropy(logits))
        ctx.save_for_backward(hidden_SH, weight_VH, bias_V, targets_S)
        ctx.temperature, ctx.entropy, ctx.logits_SV = temperature, entropy, logits_SV
        return logprobs_S, torch.cat(entropies) if entropies else logits_SV.new_empty(0)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        hidden_SH, weight_VH, bias_V, targets_S = ctx.saved_tensors
        logits_SV, ctx.logits_SV = ctx.logits_SV, None
        room = None
        for logits, targets, slopes, *entropies in _split_blocks(logits_SV, targets_S, *gradients[: 1 + ctx.entropy]):
            room = torch.zeros_like(logits) if room is None else room[: len(logits)]
            for entropy in entropies:
                # The entropy's slopes are -p log p - p; log_softmax's backward maps the last term to 0.
                torch.exp(logits, out=room).mul_(logits).mul_(-entropy[:, None])
            room.scatter_add_(1, targets[:, None], slopes[:, None])
            torch.ops.aten._log_softmax_backward_data.out(room, logits, 1, logits.dtype, out=logits)
            room.scatter_(1, targets[:, None], 0.0)
            logits.div_(ctx.temperature)
        left_SV = logits_SV.to(hidden_SH.dtype)
        result = left_SV @ weight_VH.to(hidden_SH.dtype)
        weight = product(left_SV.t(), hidden_SH, weight_VH.dtype) if ctx.needs_input_grad[1] else None
        bias = None if bias_V is None or not ctx.needs_input_grad[2] else logits_SV.sum(0)
        return result, weight, bias, None, None, None


def _entropy(logprobs_SV: Tensor) -> Tensor:
    """Compute the entropy -sum p log p of every row, nats, [S]."""
    return -torch.linalg.vecdot(logprobs_SV.exp(), logprobs_SV)


def _split_blocks(logits_SV: Tensor, *others: Tensor) -> Any:
    """Split logits into blocks of rows that fit into the cache, with the same rows of other tensors."""
    rows = max(1, BLOCK_CELLS // logits_SV.shape[1]) if logits_SV.device.type == "cpu" else max(1, len(logits_SV))
    return zip(*(each.split(rows) for each in (logits_SV, *others)), strict=True)


class _TiledLogits(torch.autograd.Function):
    """Computes logits by tiles: forward keeps their log-sums, and backward computes them again."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_SH: Tensor,
        weight_VH: Tensor,
        bias_V: Tensor | None,
        targets_S: Tensor,
        temperature: float,
        entropy: bool,
        layer: OutputLayer,
    ) -> tuple[Tensor, Tensor]:
        weight = weight_VH.to(layer.compute_dtype)
        height = max(CPU_ROWS, layer.cells // len(weight))
        tiles = Tiles(temperature, like=weight_VH)
        logprobs_S, logsums_S, entropy_S = (
            weight_VH.new_empty(len(hidden_SH), dtype=wide_dtype(weight_VH)) for _ in range(3)
        )
        parts = (each.split(height) for each in (hidden_SH, targets_S, logprobs_S, logsums_S, entropy_S))
        for hidden, targets, logprobs, logsums, entropies in zip(*parts, strict=True):
            logits = tiles.logits(hidden, weight, bias_V)
            torch.logsumexp(logits, 1, out=logsums)
            torch.sub(logits.gather(1, targets[:, None])[:, 0], logsums, out=logprobs)
            if entropy:
                entropies.copy_(_entropy(logits.sub_(logsums[:, None])))
        entropy_S = entropy_S if entropy else entropy_S[:0]
        ctx.save_for_backward(hidden_SH, weight_VH, bias_V, targets_S, logsums_S, entropy_S)
        ctx.temperature, ctx.layer = temperature, layer
        return logprobs_S, entropy_S

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        hidden_SH, weight_VH, bias_V, targets_S, logsums_S, entropy_S = ctx.saved_tensors
        weight_gradient = torch.empty_like(weight_VH) if ctx.needs_input_grad[1] else None
        bias_gradient = torch.empty_like(bias_V) if bias_V is not None and ctx.needs_input_grad[2] else None
        weight, tiles = weight_VH.to(ctx.layer.compute_dtype), Tiles(ctx.temperature, like=weight_VH)
        result = torch.empty_like(hidden_SH)
        step = ctx.layer.rows or max(1, len(hidden_SH))
        for start in range(0, max(1, len(hidden_SH)), step):
            span = slice(start, start + step)
            tokens = [hidden_SH[span], targets_S[span], logsums_S[span], entropy_S[span]]
            slopes = [each[span] / ctx.temperature for each in gradients]
            height = max(CPU_ROWS, ctx.layer.cells // max(1, len(tokens[0])))
            total, share = (torch.zeros_like(tokens[0], dtype=logsums_S.dtype) for _ in range(2))
            # A CPU has no product of bf16 matrices with an fp32 result.
            right_SH = tokens[0].to(logsums_S.dtype) if hidden_SH.device.type == "cpu" else tokens[0]
            for first in range(0, len(weight), height):
                rows = slice(first, min(len(weight), first + height))
                logits = tiles.logits(tokens[0], weight[rows], None if bias_V is None else bias_V[rows])
                left_SW = _slopes_of_logits(logits, rows, *tokens[1:], *slopes)
                total += product(left_SW.to(weight.dtype), weight[rows], share.dtype, out=share)
                if weight_gradient is not None:
                    left_WS = left_SW.to(right_SH.dtype).t()
                    if start == 0:
                        product(left_WS, right_SH, weight_gradient.dtype, out=weight_gradient[rows])
                    else:
                        weight_gradient[rows] += product(left_WS, right_SH, weight_gradient.dtype)
                if bias_gradient is not None:
                    if start == 0:
                        torch.sum(left_SW, 0, out=bias_gradient[rows])
                    else:
                        bias_gradient[rows] += left_SW.sum(0)
            result[span] = total
        return result, weight_gradient, bias_gradient, None, None, None, None


def _slopes_of_logits(
    logits_SW: Tensor,
    rows: slice,
    targets_S: Tensor,
    logsums_S: Tensor,
    entropy_S: Tensor,
    slopes_S: Tensor,
    entropy_slopes_S: Tensor,
) -> Tensor:
    """Turn a tile's logits into their gradient, in place; `entropy_S` is empty if no entropy was computed."""
    # d logprob / d logits is one at the target, minus the probabilities p; d entropy / d logits is -p (log p + H).
    logprobs = logits_SW.sub_(logsums_S[:, None])
    factors = -slopes_S[:, None]
    if len(entropy_S):
        factors = factors - (logprobs + entropy_S[:, None]).mul_(entropy_slopes_S[:, None])
    left_SW = logprobs.exp_().mul_(factors)
    inside = (targets_S >= rows.start) & (targets_S < rows.stop)
    places = (targets_S - rows.start).clamp_(0, left_SW.shape[1] - 1)
    return left_SW.scatter_add_(1, places[:, None], (slopes_S * inside)[:, None])


class Tiles:
    """Computes the logits of one tile after another, in one buffer: new memory per tile would fragment the heap."""

    def __init__(self, temperature: float, *, like: Tensor) -> None:
        self._temperature = temperature
        self._like, self._wide = like, wide_dtype(like)
        self._buffer: Tensor | None = None

    def logits(self, hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Compute logits over the temperature, in fp32 or wider; the next tile overwrites them."""
        cells = len(hidden) * len(weight)
        if self._buffer is None or self._buffer.numel() < cells:
            self._buffer = self._like.new_empty(cells, dtype=self._wide)
        logits = wide_logits(hidden, weight, bias, out=self._buffer[:cells].view(len(hidden), len(weight)))
        return logits.div_(self._temperature)
