"""RMS norms: their formula, a test of whether a layer computes it, and norms of float64 models in float64."""

from functools import partial

import torch
from torch import Tensor, nn

TOLERANCE = 1e-3
"""Largest deviation from the formula of a layer that counts as an RMS norm: stock layers round to fp32 or less."""


def epsilon_of(module: nn.Module) -> float | None:
    """Return a norm's epsilon, the constant under the root; None if the module has none."""
    eps = getattr(module, "variance_epsilon", getattr(module, "eps", None))
    return eps if isinstance(eps, float) else None


def rms_norm(states: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Compute weight * x / sqrt(mean(x^2) + eps) over the last dimension, in the operands' dtype."""
    return states * torch.rsqrt(states.square().mean(-1, keepdim=True) + eps) * weight


@torch.no_grad()
def is_rms_norm(module: nn.Module) -> bool:
    """Whether the module computes `rms_norm` with one vector of weights, tested on random numbers."""
    parameters, eps = dict(module.named_parameters(recurse=False)), epsilon_of(module)
    if list(parameters) != ["weight"] or parameters["weight"].dim() != 1 or eps is None:
        return False
    weight = parameters["weight"]
    generator = torch.Generator().manual_seed(0)
    # Shifted, so that a norm that subtracts the mean gives another result.
    trial = torch.randn(3, len(weight), generator=generator).add_(0.5).to(weight.device, weight.dtype)
    output, expected = module(trial), rms_norm(trial, weight, eps)
    return output.shape == expected.shape and bool((output - expected).abs().max() <= TOLERANCE)


def compute_in_own_dtype(model: nn.Module) -> None:
    """Make the RMS norms of a float64 model compute in float64: stock norms round to fp32."""
    for module in model.modules():
        if is_rms_norm(module):
            eps = epsilon_of(module)
            assert isinstance(module.weight, Tensor) and eps is not None
            module.__dict__["forward"] = partial(rms_norm, weight=module.weight, eps=eps)
