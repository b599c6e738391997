"""Lion (X. Chen et al. 2023), as somebody might add it: steps along the sign of a mean gradient."""

from dataclasses import dataclass

import torch
from torch import Tensor

from infuser_core.algorithm.influence import partial_sums
from infuser_core.config.optimizers import Options
from infuser_core.engines.training.flat import FlatParameters
from infuser_core.engines.training.optimizer import Optimizer


@dataclass(frozen=True, slots=True, kw_only=True)
class LionOptions(Options):
    elementwise = False
    kept = ("beta1", "blend")

    beta1: float = 0.99
    blend: float = 0.9

    @classmethod
    def moments(cls, *, hidden: bool) -> str:
        return "m"


class Lion(Optimizer[LionOptions]):
    def __init__(self, parameters: FlatParameters, options: LionOptions) -> None:
        super().__init__(parameters, options)
        self._flat = parameters
        self._first = torch.zeros_like(parameters.data)

    def _move(self, learning_rate: float, *, clip: float) -> None:
        flat, options = self._flat, self.options
        gradient = flat.gradient.mul_(clip)
        flat.data.mul_(1.0 - learning_rate * options.weight_decay)
        flat.data.add_(gradient.lerp(self._first, options.blend).sign(), alpha=-learning_rate)
        self._first.lerp_(gradient, 1.0 - options.beta1)

    def state(self) -> dict[str, Tensor]:
        return {f"m.{name}": each for name, each in self._flat.views(self._first).items()}

    def sums(self, gradient: Tensor, reference: Tensor) -> Tensor:
        return partial_sums(gradient, reference, gradient.sign())


OPTIMIZER = Lion
OPTIONS = LionOptions
