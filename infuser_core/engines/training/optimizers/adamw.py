"""AdamW over one flat buffer of all parameters, with the same operations as torch.optim.AdamW."""

from collections.abc import Iterable

import torch
from torch import Tensor

from infuser_core.algorithm.influence import Elementwise, direction, partial_sums
from infuser_core.config.optimizers import AdamWOptions
from infuser_core.engines.training.flat import FlatBuffers
from infuser_core.engines.training.optimizer import Optimizer, named_moments
from infuser_core.memory.sizes import CHUNK


class AdamW(Optimizer[AdamWOptions]):
    """AdamW with its moments, over flat parameters in one process or sharded over ranks."""

    def __init__(self, parameters: FlatBuffers, options: AdamWOptions) -> None:
        super().__init__(parameters, options)
        self.first = torch.zeros_like(parameters.data)
        self.second = torch.zeros_like(parameters.data)

    def _move(self, learning_rate: float, *, clip: float) -> None:
        flat = self._parameters
        for data, gradient, first, second in flat.chunks(flat.data, flat.gradient, self.first, self.second):
            if clip < 1.0:
                gradient.mul_(clip)
            update(data, gradient, first, second, options=self.options, rate=learning_rate, steps=self.steps)

    @torch.no_grad()
    def below_epsilon(self) -> float:
        least = self.options.eps**2 * (1.0 - self.options.beta2**self.steps)
        views = self._parameters.views(self.second).values()
        counts = [sum(int((piece < least).sum()) for piece in view.flatten().split(CHUNK)) for view in views]
        sizes = [float(view.numel()) for view in views]
        count, size = self._parameters.total(torch.tensor([sum(counts), sum(sizes)], dtype=torch.float64)).tolist()
        return count / size

    def state(self) -> dict[str, Tensor]:
        views = self._parameters.views
        return named_moments(views(self.first), views(self.second))

    def buffers(self) -> list[Tensor]:
        return [self.first, self.second]

    def sums(self, gradient: Tensor, reference: Tensor) -> Tensor:
        flat = self._parameters
        return flat.total(direction_sums(flat.chunks(gradient, reference, self.second), self.form))

    @property
    def form(self) -> Elementwise:
        """Formula of Gamma at the current step (eq:adamw_moments)."""
        return Elementwise.of_adamw(step=self.steps, beta2=self.options.beta2, eps=self.options.eps)


def direction_sums(pieces: Iterable[tuple[Tensor, ...]], form: Elementwise) -> Tensor:
    """Add up `partial_sums` of AdamW's direction over pieces of a gradient, a reference and v."""
    return torch.stack([partial_sums(g, ref, direction(g, v, form)) for g, ref, v in pieces]).sum(0)


def update(
    data: Tensor, gradient: Tensor, first: Tensor, second: Tensor, *, options: AdamWOptions, rate: float, steps: int
) -> None:
    """Make AdamW's step number `steps` on one piece of the parameters, in place, with a clipped gradient."""
    data.mul_(1.0 - rate * options.weight_decay)
    first.lerp_(gradient, 1.0 - options.beta1)
    second.mul_(options.beta2).addcmul_(gradient, gradient, value=1.0 - options.beta2)
    correction = (1.0 - options.beta2**steps) ** 0.5
    denominator = (second.sqrt() / correction).add_(options.eps)
    data.addcdiv_(first, denominator, value=-rate / (1.0 - options.beta1**steps))


OPTIMIZER = AdamW
OPTIONS = AdamWOptions
