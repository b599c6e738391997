"""The clipped rollout objective shared by all four estimators (eq:unified_obj), token by token.

Shape suffix: _S response tokens of any number of responses, one after the other.
"""

from dataclasses import dataclass
from typing import get_args

import torch
from torch import Tensor

from infuser_core.algorithm.preset import TisForm

LOG_RATIO_LIMIT = 20.0
"""Log-ratios are clamped here before exp: e^20 is finite in every dtype we compute in, and far outside the clip."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveTerms:
    """Loss of a set of response tokens and the sums its metrics are made of."""

    loss: Tensor
    """Negative objective, weighted sum over tokens; a differentiable scalar."""
    clipped: Tensor
    """Tokens on which the clipped branch was active, scalar."""
    ratio: Tensor
    """Sum of importance ratios, scalar."""
    tis: Tensor
    """Sum of truncated importance weights, scalar."""
    tokens: int
    """Response tokens."""


def clipped_objective(
    logprobs_S: Tensor,
    *,
    advantages_S: Tensor,
    weights_S: Tensor,
    sampler_logprobs_S: Tensor,
    old_logprobs_S: Tensor | None = None,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    dual_clip: float | None = None,
    tis_cap: float | None = 2.0,
    tis_form: TisForm = "old_over_sampler",
) -> ObjectiveTerms:
    """-sum_t weight_t * w_t * min(rho_t A_t, clip(rho_t, 1 - low, 1 + high) A_t), all tensors of shape [S].

    `weights_S` carries 1/(n C) and the caller's denominator. rho is current over old policy; without
    `old_logprobs_S` old is the detached current policy (rho = 1, full gradient). w is the token-level truncated
    importance weight min(old / sampler, cap), detached; `tis_cap=None` switches it off. `current_over_sampler`
    truncates current / sampler instead, so that the weight follows the policy from step to step of one update; with
    old the current policy both forms are one. Raises ValueError for another form.
    """
    if tis_form not in get_args(TisForm):
        raise ValueError(f"unknown tis_form {tis_form!r}; choose one of {', '.join(get_args(TisForm))}")
    old_S = logprobs_S.detach() if old_logprobs_S is None else old_logprobs_S
    ratio_S = _ratio(logprobs_S, old_S)
    plain_S = -advantages_S * ratio_S
    clipped_S = -advantages_S * ratio_S.clamp(1.0 - clip_low, 1.0 + clip_high)
    loss_S = torch.maximum(plain_S, clipped_S)
    if dual_clip is not None:
        loss_S = torch.where(advantages_S < 0, torch.minimum(loss_S, -dual_clip * advantages_S), loss_S)
    behind_S = old_S if tis_form == "old_over_sampler" else logprobs_S
    tis_S = truncated_weight(behind_S, sampler_logprobs_S, cap=tis_cap)
    return ObjectiveTerms(
        loss=(loss_S * tis_S * weights_S).sum(),
        clipped=(clipped_S > plain_S).sum().detach(),
        ratio=ratio_S.detach().sum(),
        tis=tis_S.sum(),
        tokens=logprobs_S.numel(),
    )


def truncated_weight(logprobs_S: Tensor, sampler_logprobs_S: Tensor, *, cap: float | None) -> Tensor:
    """min(pi / pi_sampler, cap) per token, without gradient; ones where `cap` is None."""
    if cap is None:
        return torch.ones_like(logprobs_S)
    return _ratio(logprobs_S.detach(), sampler_logprobs_S).clamp(max=cap)


def _ratio(logprobs_S: Tensor, reference_S: Tensor) -> Tensor:
    return (logprobs_S - reference_S).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()
