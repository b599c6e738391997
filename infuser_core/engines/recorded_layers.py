"""Autograd functions of the layers a Recorder replaces: the stock forward, and a backward that gives the weight's
operands to `note` instead of forming a gradient. Weights take part in the graph and receive None.

Shapes: _T tokens, _O and _I output and input features.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


class RecordedLinear(torch.autograd.Function):
    """y = x W^T + b in the dtype of x; `note(dy, x)` gets [T, O] and [T, I]."""

    @staticmethod
    def forward(
        ctx: Any, states: Tensor, weight: Tensor, bias: Tensor | None, note: Callable[[Tensor, Tensor], None]
    ) -> Tensor:
        ctx.save_for_backward(states, weight)
        ctx.note = note
        return F.linear(states, weight.to(states.dtype), None if bias is None else bias.to(states.dtype))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        states, weight = ctx.saved_tensors
        ctx.note(gradients[0].flatten(0, -2), states.flatten(0, -2))
        return gradients[0] @ weight.to(gradients[0].dtype), None, None, None


class RecordedEmbedding(torch.autograd.Function):
    """Rows of a weight by token id; `note(dy)` gets [T, I]."""

    @staticmethod
    def forward(ctx: Any, tokens: Tensor, weight: Tensor, note: Callable[[Tensor], None]) -> Tensor:
        ctx.note = note
        return F.embedding(tokens, weight)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None, None]:
        ctx.note(gradients[0].flatten(0, -2))
        return None, None, None


class RecordedNorm(torch.autograd.Function):
    """y = weight * x / sqrt(mean(x^2) + eps) in the weight's dtype; `note` gets each token's share of d weight."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, weight: Tensor, eps: float, note: Callable[[Tensor], None]) -> Tensor:
        wide = states.to(weight.dtype)
        scale = torch.linalg.vector_norm(wide, dim=-1, keepdim=True).square_().div_(wide.shape[-1]).add_(eps).rsqrt_()
        ctx.save_for_backward(states, weight, scale)
        ctx.note = note
        return (wide * scale).mul_(weight)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        states, weight, scale = ctx.saved_tensors
        gradient = gradients[0].to(weight.dtype)
        normed = states.to(weight.dtype) * scale
        share = gradient * normed
        ctx.note(share)
        mean = (share @ weight).unsqueeze_(-1).div_(weight.numel())
        result = (gradient * weight).sub_(normed.mul_(mean)).mul_(scale)
        return result.to(states.dtype), None, None, None
