"""Norms by root mean square: the formula, the layers that follow it, and those of a float64 model in float64."""

from functools import partial

import torch
from torch import Tensor, nn

TOLERANCE = 1e-3
"""Largest deviation from the formula at which a layer counts as one: stock layers round to fp32 or less."""


def epsilon_of(module: nn.Module) -> float | None:
    """The constant under the root; None where the module names none."""
    found = getattr(module, "variance_epsilon", getattr(module, "eps", None))
    return found if isinstance(found, float) else None


def rms_norm(states: Tensor, weight: Tensor, eps: float) -> Tensor:
    """weight * x / sqrt(mean(x^2) + eps) over the last dimension, in the operands' dtype."""
    return states * torch.rsqrt(states.square().mean(-1, keepdim=True) + eps) * weight


@torch.no_grad()
def is_rms_norm(module: nn.Module) -> bool:
    """Whether the module is `rms_norm` with one vector of weights, tried on numbers."""
    own, eps = dict(module.named_parameters(recurse=False)), epsilon_of(module)
    if list(own) != ["weight"] or own["weight"].dim() != 1 or eps is None:
        return False
    weight = own["weight"]
    generator = torch.Generator().manual_seed(0)
    # Shifted, so that a norm that subtracts the mean gives another result.
    trial = torch.randn(3, len(weight), generator=generator).add_(0.5).to(weight.device, weight.dtype)
    found, expected = module(trial), rms_norm(trial, weight, eps)
    return found.shape == expected.shape and bool((found - expected).abs().max() <= TOLERANCE)


def compute_in_own_dtype(model: nn.Module) -> None:
    """Stock norms round to fp32 whatever the model's dtype; let those of a float64 model compute in float64."""
    for module in model.modules():
        if is_rms_norm(module):
            eps = epsilon_of(module)
            assert isinstance(module.weight, Tensor) and eps is not None
            module.__dict__["forward"] = partial(rms_norm, weight=module.weight, eps=eps)
