"""Optimizer-aware influence: AdamW's update direction (Gamma) for a question, and the sums that its scores need.

Every operation is elementwise or a sum, so a parameter may be complete, in pieces or one rank's shard: `partial_sums`
of the pieces add up. The score itself (cosine or dot product) is computed from the totals in `score.py`.
`influence_score` does all of it for a trainer that uses torch's AdamW.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from infuser_core.algorithm.score import Influence, norm, score
from infuser_core.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Elementwise:
    """Coefficients of AdamW's direction, element by element: Gamma = g / (sqrt(decayed v + fresh g^2) + eps)."""

    decayed: float
    """Weight of the second moment v."""
    fresh: float
    """Weight of the question's own g^2."""
    eps: float
    """Added to the root."""

    @classmethod
    def of_adamw(cls, *, step: int, beta2: float, eps: float) -> "Elementwise":
        """Coefficients of AdamW's next step after `step` steps (eq:adamw_moments).

        They are b2 / (1 - b2^t) and (1 - b2) / (1 - b2^t) with t = step + 1.
        """
        correction = 1.0 - beta2 ** (step + 1)
        return cls(decayed=beta2 / correction, fresh=(1.0 - beta2) / correction, eps=eps)


def direction(gradient: Tensor, second_moment: Tensor, form: Elementwise) -> Tensor:
    """AdamW's direction Gamma for a gradient and v, without first moment and weight decay; inputs are not changed."""
    scale = torch.mul(second_moment, form.decayed).addcmul_(gradient, gradient, value=form.fresh)
    return torch.div(gradient, scale.sqrt_().add_(form.eps), out=scale)


def partial_sums(gradient: Tensor, reference: Tensor, gamma: Tensor) -> Tensor:
    """Sums [<ref, Gamma>, <ref, g>, |Gamma|^2, |g|^2] over one piece: fp64 of shape [4], see `inner`."""
    pairs = ((reference, gamma), (reference, gradient), (gamma, gamma), (gradient, gradient))
    return torch.stack([inner(*pair) for pair in pairs])


@torch.no_grad()
def influence_score(
    gradients: Sequence[Tensor],
    references: Sequence[Tensor],
    parameters: Sequence[Tensor],
    optimizer: torch.optim.Optimizer,
    *,
    mode: Influence = "preconditioned_cosine",
) -> float:
    """Influence of one question on the dev set, for any trainer with torch's AdamW (eq:estimated_influence_score).

    `parameters` are those the solver trains, `gradients` those of the question's loss and `references` those of the
    dev set's (g_dev), in the same order and shapes, as `torch.autograd.grad(loss, parameters)` returns them; both of
    the loss or both of the objective. The optimizer's second moments, steps, beta2 and eps are read and not changed;
    before its first step v is 0. Sums: see `inner`. A zero gradient scores 0.

    Raises ConfigError if a parameter is not the optimizer's, or the optimizer is not Adam's or has `amsgrad`.
    """
    settings = {parameter: group for group in optimizer.param_groups for parameter in group["params"]}
    sums, reference_sq = [torch.zeros(4, dtype=torch.float64)], 0.0
    for parameter, gradient, reference in zip(parameters, gradients, references, strict=True):
        if parameter not in settings:
            shape = tuple(parameter.shape)
            raise ConfigError(
                f"influence_score: a parameter of shape {shape} is not the optimizer's",
                hint="pass the parameters that the optimizer updates",
            )
        form, second = _adamw_of(optimizer.state.get(parameter, {}), settings[parameter])
        # Rounded to bf16, Gamma would keep three digits.
        wide = torch.promote_types(gradient.dtype, torch.float32)
        gradient, reference = gradient.to(wide), reference.to(wide)
        gamma = direction(gradient, torch.zeros_like(gradient) if second is None else second.to(wide), form)
        sums.append(partial_sums(gradient, reference, gamma).cpu())
        reference_sq += float(inner(reference, reference))
    dot, raw_dot, direction_sq, gradient_sq = torch.stack(sums).sum(0).tolist()
    return score(
        mode,
        dot=dot,
        raw_dot=raw_dot,
        direction_norm=norm(direction_sq),
        gradient_norm=norm(gradient_sq),
        reference_norm=norm(reference_sq),
    )


def _adamw_of(state: Mapping[str, Any], settings: Mapping[str, Any]) -> tuple[Elementwise, Tensor | None]:
    """Coefficients of the next step and v, None for 0, from one parameter's state and settings in torch's AdamW."""
    if "betas" not in settings or settings.get("amsgrad") or (state and "exp_avg_sq" not in state):
        raise ConfigError(
            f"influence_score: the optimizer's state has {sorted(state)} and its settings {sorted(settings)}",
            hint="use torch.optim.AdamW without amsgrad: the score needs betas, eps, step and exp_avg_sq",
        )
    form = Elementwise.of_adamw(step=int(state.get("step", 0)), beta2=settings["betas"][1], eps=settings["eps"])
    return form, state.get("exp_avg_sq")


RUN = 1 << 16
"""Elements of a sum in the operands' dtype on a CPU: longer ones lose digits and leave the cache."""


def inner(left: Tensor, right: Tensor) -> Tensor:
    """Inner product <left, right> as an fp64 scalar: sums of `RUN` elements in the tensors' dtype, their sum in fp64.

    An accelerator adds all elements of the tensors in their dtype, pair by pair.
    """
    left, right = left.reshape(-1), right.reshape(-1)
    size = RUN if left.device.type == "cpu" else max(1, len(left))
    return torch.stack([torch.dot(*pair) for pair in zip(left.split(size), right.split(size), strict=True)]).sum(
        dtype=torch.float64
    )
