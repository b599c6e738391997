"""Stochastic gradient descent with momentum, as torch.optim.SGD but with decoupled weight decay.

m <- momentum m + g; theta <- theta - rate (m, or g + momentum m with Nesterov momentum). The direction for one gradient
alone is that gradient.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from infuser_core.algorithm.influence import inner
from infuser_core.config.optimizers import Options
from infuser_core.engines.training.flat import FlatParameters
from infuser_core.engines.training.optimizer import Optimizer


@dataclass(frozen=True, slots=True, kw_only=True)
class SGDOptions(Options):
    """Constants of SGD with momentum."""

    kept = ("momentum",)

    momentum: float = 0.9
    """Decay of the sum of gradients."""
    nesterov: bool = False
    """Whether steps use Nesterov momentum."""

    @classmethod
    def moments(cls, *, hidden: bool) -> str:
        """Names of a parameter's moments: `m`, the decayed sum of gradients, for every parameter."""
        return "m"


class SGD(Optimizer[SGDOptions]):
    """SGD with momentum, the decayed sum of gradients, over flat parameters."""

    def __init__(self, parameters: FlatParameters, options: SGDOptions) -> None:
        super().__init__(parameters, options)
        self._flat = parameters
        self.first = torch.zeros_like(parameters.data)

    def _move(self, learning_rate: float, *, clip: float) -> None:
        flat, options = self._flat, self.options
        for data, gradient, first in flat.chunks(flat.data, flat.gradient, self.first):
            if clip < 1.0:
                gradient.mul_(clip)
            first.mul_(options.momentum).add_(gradient)
            data.mul_(1.0 - learning_rate * options.weight_decay)
            step = gradient.add(first, alpha=options.momentum) if options.nesterov else first
            data.add_(step, alpha=-learning_rate)

    def state(self) -> dict[str, Tensor]:
        return {f"m.{name}": each for name, each in self._flat.views(self.first).items()}

    def sums(self, gradient: Tensor, reference: Tensor) -> Tensor:
        pairs = [(inner(ref, g), inner(g, g)) for g, ref in self._flat.chunks(gradient, reference)]
        dot, squares = (torch.stack(each).sum() for each in zip(*pairs, strict=True))
        return torch.stack([dot, dot, squares, squares])


OPTIMIZER = SGD
OPTIONS = SGDOptions
