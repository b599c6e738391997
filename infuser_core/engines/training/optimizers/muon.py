"""The Muon optimizer: hidden matrices step along their orthogonalised momentum, other parameters as under AdamW.

K. Jordan et al. 2024 (Muon; its coefficients of Newton-Schulz), and the scale 0.2 sqrt(max(rows, columns)) of Moonlight
(J. Liu et al. 2025, arXiv 2502.16982), with which AdamW's learning rates fit. The direction for one gradient alone is
that scale times the orthogonalised gradient; for other parameters, Gamma of eq:adamw_moments.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from infuser_core.algorithm.influence import Elementwise, direction, partial_sums
from infuser_core.config.optimizers import AdamWOptions
from infuser_core.engines.training.flat import FlatParameters
from infuser_core.engines.training.optimizer import Optimizer, named_moments
from infuser_core.engines.training.optimizers.adamw import update

A, B, C = 3.4445, -4.7750, 2.0315
STEPS = 5
SCALE = 0.2
"""Root mean square of an update in units of the learning rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MuonOptions(AdamWOptions):
    """Constants of Muon; those of AdamW apply to all parameters but the hidden matrices."""

    trainers = ("local",)
    elementwise = False
    kept = ("momentum", "beta1", "beta2", "eps")

    momentum: float = 0.95
    """Decay of the mean gradient of a hidden matrix."""
    nesterov: bool = True
    """Whether steps use Nesterov momentum."""

    @classmethod
    def moments(cls, *, hidden: bool) -> str:
        """Names of a parameter's moments: `m`, the mean gradient, for hidden matrices; AdamW's two for others."""
        return "m" if hidden else "mv"

    @classmethod
    def direction_flops(cls, rows: int, columns: int) -> float:
        """Count the FLOPs of Newton-Schulz for one matrix."""
        short, long = sorted((rows, columns))
        return STEPS * (4.0 * short * short * long + 2.0 * short**3)


def orthogonalise(matrices: Tensor) -> Tensor:
    """Approximate the nearest (semi-)orthogonal matrices by Newton-Schulz; [..., rows <= columns].

    The singular values of the result are .7 to 1.2.
    """
    x = matrices / (matrices.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(STEPS):
        gram = x @ x.mT
        x = A * x + (B * gram + C * gram @ gram) @ x
    return x


def scale_orthogonal(matrix: Tensor) -> Tensor:
    """Orthogonalise a matrix of any shape, and scale it as Moonlight does."""
    is_wide = matrix.shape[0] <= matrix.shape[1]
    result = orthogonalise(matrix) if is_wide else orthogonalise(matrix.mT).mT
    return result * (SCALE * max(matrix.shape) ** 0.5)


class Muon(Optimizer[MuonOptions]):
    """Muon with the mean gradients of hidden matrices, and AdamW's moments of all other parameters."""

    def __init__(self, parameters: FlatParameters, options: MuonOptions) -> None:
        super().__init__(parameters, options)
        self._flat = parameters
        self._first = parameters.views(torch.zeros_like(parameters.data))
        others = {name: each for name, each in self._first.items() if name not in parameters.hidden}
        self._second = {name: torch.zeros_like(each) for name, each in others.items()}

    def _move(self, learning_rate: float, *, clip: float) -> None:
        flat, options = self._flat, self.options
        if clip < 1.0:
            flat.gradient.mul_(clip)
        gradients = flat.views(flat.gradient)
        for name, data in flat.views(flat.data).items():
            gradient, first = gradients[name], self._first[name]
            if name in self._second:
                second = self._second[name]
                update(data, gradient, first, second, options=options, rate=learning_rate, steps=self.steps)
                continue
            first.lerp_(gradient, 1.0 - options.momentum)
            step = gradient.lerp(first, options.momentum) if options.nesterov else first
            data.mul_(1.0 - learning_rate * options.weight_decay)
            data.add_(scale_orthogonal(step), alpha=-learning_rate)

    def state(self) -> dict[str, Tensor]:
        return named_moments(self._first, self._second)

    def sums(self, gradient: Tensor, reference: Tensor) -> Tensor:
        form = Elementwise.of_adamw(step=self.steps, beta2=self.options.beta2, eps=self.options.eps)
        references, parts = self._flat.views(reference), []
        for name, g in self._flat.views(gradient).items():
            second = self._second.get(name)
            gamma = scale_orthogonal(g) if second is None else direction(g, second, form)
            parts.append(partial_sums(g, references[name], gamma))
        return torch.stack(parts).sum(0)


OPTIMIZER = Muon
OPTIONS = MuonOptions
