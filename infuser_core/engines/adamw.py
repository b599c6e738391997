"""AdamW over one flat buffer, operation by operation as torch.optim.AdamW does it, with its state in the open.

Influence scores read the second moment, and checkpoints carry both moments: neither should have to dig in an
optimizer's internals.
"""

import math
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from infuser_core.engines.flat import FlatParameters


@dataclass(frozen=True, slots=True, kw_only=True)
class AdamWOptions:
    """Constants of the optimizer; the defaults are the paper's."""

    beta1: float = 0.9
    """Decay of the first moment."""
    beta2: float = 0.999
    """Decay of the second moment."""
    eps: float = 1e-8
    """Added to the root of the second moment."""
    weight_decay: float = 0.01
    """Decoupled weight decay, on every parameter."""
    max_grad_norm: float = 1.0
    """Global gradient norm above which the gradient is scaled down."""

    def to_json(self) -> dict[str, float]:
        """Plain values for `trainer.json`."""
        return asdict(self)


class AdamW:
    """Moments and step count of a set of flat parameters."""

    def __init__(self, parameters: FlatParameters, options: AdamWOptions) -> None:
        self.options = options
        self.first = torch.zeros_like(parameters.data)
        self.second = torch.zeros_like(parameters.data)
        self.steps = 0
        self._parameters = parameters

    @torch.no_grad()
    def step(self, learning_rate: float) -> float:
        """Clip, then step; returns the gradient norm before clipping. A non-finite norm changes nothing."""
        flat, options = self._parameters, self.options
        norm = flat.norm(flat.gradient)
        if not math.isfinite(norm):
            return norm
        # The form of torch.nn.utils.clip_grad_norm_, its 1e-6 included.
        scale = min(1.0, options.max_grad_norm / (norm + 1e-6))
        self.steps += 1
        for data, gradient, first, second in flat.chunks(flat.data, flat.gradient, self.first, self.second):
            if scale < 1.0:
                gradient.mul_(scale)
            self._update(data, gradient, first, second, learning_rate)
        return norm

    def _update(self, data: Tensor, gradient: Tensor, first: Tensor, second: Tensor, learning_rate: float) -> None:
        options = self.options
        data.mul_(1.0 - learning_rate * options.weight_decay)
        first.lerp_(gradient, 1.0 - options.beta1)
        second.mul_(options.beta2).addcmul_(gradient, gradient, value=1.0 - options.beta2)
        correction = (1.0 - options.beta2**self.steps) ** 0.5
        denominator = (second.sqrt() / correction).add_(options.eps)
        data.addcdiv_(first, denominator, value=-learning_rate / (1.0 - options.beta1**self.steps))
