"""The clipped rollout objective shared by all four estimators (eq:unified_obj), token by token.

Shape suffix: _S for response tokens, those of all responses concatenated.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from infuser_core.algorithm.preset import Objective

LOG_RATIO_LIMIT = 20.0
"""Log-ratios are clamped here before exp: e^20 is finite in every dtype we compute in, and far outside the clip."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveTerms:
    """Loss of a set of response tokens, and the sums from which its metrics are computed."""

    loss: Tensor
    """Negative objective, weighted sum over tokens; a differentiable scalar."""
    sums: Mapping[str, Tensor]
    """Scalar sums over the tokens, by the column that holds their mean (described in schemas.TOKEN_MEANS)."""
    tokens: int
    """Response tokens."""


def clipped_objective(
    logprobs_S: Tensor,
    *,
    advantages_S: Tensor,
    weights_S: Tensor,
    sampler_logprobs_S: Tensor,
    old_logprobs_S: Tensor | None = None,
    anchor_logprobs_S: Tensor | None = None,
    rows_S: Tensor | None = None,
    entropy_S: Tensor | None = None,
    objective: Objective,
) -> ObjectiveTerms:
    """Clipped objective as a loss: -sum_t weight_t * w_t * min(rho_t A_t, clip(rho_t, 1 - low, 1 + high) A_t).

    All tensors have shape [S]; `objective` holds the constants. `weights_S` carries 1/(n C) and the caller's
    denominator. rho is the ratio of current to old policy; without `old_logprobs_S` the old policy is the detached
    current one (rho = 1, full gradient). w is the token-level truncated importance weight min(old / sampler, cap),
    detached; `tis_cap=None` disables it. `tis_form` "current_over_sampler" truncates current / sampler instead, so
    that the weight follows the policy from step to step of one update; both forms agree if the old policy is the
    current one. `ratio` "sequence" replaces rho_t of every token by the response's geometric mean (GSPO, arXiv
    2507.18071, eq. 7); `rows_S` numbers the responses. Added, with its gradient, is `kl` times weight_t times k3 of
    KL(current || anchor) (GRPO, arXiv 2402.03300, eq. 4). Subtracted is `entropy` times weight_t times `entropy_S`,
    the policy's entropy at the token (A3C, arXiv 1602.01783, section 4).
    """
    old_S = logprobs_S.detach() if old_logprobs_S is None else old_logprobs_S
    ratio_S = _ratio(logprobs_S, old_S, rows_S if objective.ratio == "sequence" else None)
    plain_S = -advantages_S * ratio_S
    clipped_S = -advantages_S * ratio_S.clamp(1.0 - objective.clip_low, 1.0 + objective.clip_high)
    loss_S, active_S = torch.maximum(plain_S, clipped_S), (clipped_S > plain_S).detach()
    if objective.dual_clip is not None:
        loss_S = torch.where(advantages_S < 0, torch.minimum(loss_S, -objective.dual_clip * advantages_S), loss_S)
    cap = objective.tis_cap
    numerator_S = old_S if objective.tis_form == "old_over_sampler" else logprobs_S
    tis_S = truncated_weight(numerator_S, sampler_logprobs_S, cap=cap)
    loss, anchor_S = (loss_S * tis_S * weights_S).sum(), torch.zeros_like(logprobs_S)
    if anchor_logprobs_S is not None:
        anchor_S = _k3(_ratio(anchor_logprobs_S, logprobs_S))
        loss = loss + objective.kl * (anchor_S * weights_S).sum()
    if entropy_S is not None:
        loss = loss - objective.entropy * (entropy_S * weights_S).sum()
    with torch.no_grad():
        weight_S = truncated_weight(old_S, sampler_logprobs_S, cap=math.inf)
        sums = {
            "clip_fraction": active_S.sum(),
            "clip_fraction_high": (active_S & (advantages_S > 0)).sum(),
            "mean_ratio": ratio_S.sum(),
            "mean_tis": tis_S.sum(),
            "truncated": (weight_S > (math.inf if cap is None else cap)).sum(),
            "sampler_kl": _k3(weight_S).sum(),
            "policy_kl": _k3(_ratio(logprobs_S, old_S)).sum(),
            "anchor_kl": anchor_S.sum(),
            "entropy": -logprobs_S.sum(),
        }
    return ObjectiveTerms(loss=loss, sums=sums, tokens=logprobs_S.numel())


def _k3(ratio_S: Tensor) -> Tensor:
    """Estimate of KL(p || q): r - 1 - log r, r = q / p on samples of p (J. Schulman, Approximating KL, 2020)."""
    return ratio_S - 1.0 - ratio_S.log()


def truncated_weight(logprobs_S: Tensor, sampler_logprobs_S: Tensor, *, cap: float | None) -> Tensor:
    """Truncated importance weight min(pi / pi_sampler, cap) per token, without gradient; ones if `cap` is None."""
    if cap is None:
        return torch.ones_like(logprobs_S)
    return _ratio(logprobs_S.detach(), sampler_logprobs_S).clamp(max=cap)


def _ratio(logprobs_S: Tensor, reference_S: Tensor, rows_S: Tensor | None = None) -> Tensor:
    """Ratio pi / pi_reference per token; with `rows_S`, the geometric mean over the token's response."""
    log_S = logprobs_S - reference_S
    if rows_S is not None:
        count = int(rows_S.max()) + 1
        sums_R = log_S.new_zeros(count).index_add(0, rows_S, log_S)
        log_S = (sums_R / torch.bincount(rows_S, minlength=count).to(log_S.dtype))[rows_S]
    return log_S.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()
