"""Base class of optimizers, found by name: the optimizer step, and the update direction for one gradient alone.

A file of `optimizers` has its class as OPTIMIZER and the dataclass of its constants as OPTIONS; see config/optimizers.
The influence score needs this direction, Gamma: the paper's for AdamW (eq:adamw_moments). For any other optimizer it is
likewise the step on a question's gradient alone, divided by the learning rate, without momentum, decay and clipping.
"""

import math
from collections.abc import Collection, Mapping
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from infuser_core.config.optimizers import OPTIMIZERS, Options
from infuser_core.engines.training.flat import FlatBuffers, hidden_matrices
from infuser_core.plugins import require_extra

Constants = TypeVar("Constants", bound=Options)
Value = TypeVar("Value")
OptimizerSetting = Options | Mapping[str, Any] | None
"""Options as engines accept them: see `options_of`."""


class Optimizer(Generic[Constants]):
    """Updates flat parameters, and computes the update direction Gamma for one gradient alone."""

    def __init__(self, parameters: FlatBuffers, options: Constants) -> None:
        self.options = options
        self.steps = 0
        self._parameters = parameters

    @torch.no_grad()
    def step(self, learning_rate: float) -> float:
        """Clip the gradient and update; returns the norm before clipping. A non-finite norm changes nothing."""
        norm = self._parameters.norm(self._parameters.gradient)
        if math.isfinite(norm):
            self.steps += 1
            # The form of torch.nn.utils.clip_grad_norm_, its 1e-6 included.
            self._move(learning_rate, clip=min(1.0, self.options.max_grad_norm / (norm + 1e-6)))
        return norm

    def below_epsilon(self) -> float:
        """Return the share of parameters whose second moment, bias corrected, has a root below epsilon; 0 without any.

        Their direction is close to the gradient over epsilon, no longer to its sign.
        """
        return 0.0

    def _move(self, learning_rate: float, *, clip: float) -> None:
        raise NotImplementedError

    @classmethod
    def first_moment(cls, name: str, weight: Tensor) -> dict[str, Tensor]:
        """Create a zero moment of a parameter, under its names in `state`."""
        return {name: torch.zeros_like(weight)}

    def state(self) -> dict[str, Tensor]:
        """Return the moments, not copied, as `m.<parameter>` and `v.<parameter>`."""
        raise NotImplementedError

    def buffers(self) -> list[Tensor]:
        """List the tensors in which the moments are stored, the same ones for the optimizer's whole life."""
        return list(self.state().values())

    def sums(self, gradient: Tensor, reference: Tensor) -> Tensor:
        """Compute [<ref, Gamma>, <ref, g>, |Gamma|^2, |g|^2] of one flat gradient g, fp64, over all processes."""
        raise NotImplementedError


def build_optimizer(parameters: FlatBuffers, options: Options) -> Optimizer[Any]:
    """Create the optimizer that `options` names, with zero moments. Raises EngineError if its package is missing."""
    if options.extra:
        require_extra(f"the optimizer {options.name}", options.extra)
    return _kind(options)(parameters, options)


def _kind(options: Options) -> type[Optimizer[Any]]:
    kind: type[Optimizer[Any]] = OPTIMIZERS.find(options.name, "OPTIMIZER")[1]
    return kind


def named_moments(first: Mapping[str, Value], second: Mapping[str, Value]) -> dict[str, Value]:
    """Name both moments of parameters as in a checkpoint: `m.<parameter>` and `v.<parameter>`."""
    return {f"m.{name}": each for name, each in first.items()} | {f"v.{name}": each for name, each in second.items()}


def first_moments(options: Options, weights: Mapping[str, Tensor], outer: Collection[str]) -> dict[str, Tensor]:
    """Create the zero moments of a first checkpoint; `outer` names the embedding and the output layer."""
    hidden, kind = hidden_matrices(weights, outer), _kind(options)
    return {
        key: moment
        for letter in "mv"
        for name, weight in weights.items()
        if letter in options.moments(hidden=name in hidden)
        for key, moment in kind.first_moment(f"{letter}.{name}", weight).items()
    }
