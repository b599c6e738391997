"""From logits to tokens: counter-based randomness and inverse-CDF sampling.

Shapes: _R rows, _V vocabulary. The uniform number of a token is a hash of (its sample's seed, its position), so a
response depends on nothing else that happens to be sampled beside it.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from infuser_core.engines.protocols import SamplingParams

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""Increment of the splitmix64 generator."""

CHUNK_CELLS = 1 << 25
"""Logits handled at a time: fp64 cumulative sums of this many take 256 MiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picked:
    """One token per row."""

    tokens_R: Tensor
    """Token ids, int64."""
    logprobs_R: Tensor
    """Their log-probabilities at the sampling temperature, before top-k and top-p, nats, fp32."""


def _mix(z: np.ndarray) -> np.ndarray:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def uniforms(seeds_R: np.ndarray, position: int) -> np.ndarray:
    """One fp64 number in [0, 1) per uint64 seed for the token at `position` (splitmix64 finaliser, twice)."""
    with np.errstate(over="ignore"):
        # The first mix separates neighbouring seeds, which would otherwise be shifted copies of one stream.
        bits = _mix(_mix(seeds_R + GOLDEN) + GOLDEN * np.uint64(position + 1))
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def pick(logits_RV: Tensor, uniforms_R: Tensor, params: SamplingParams) -> Picked:
    """Draw one token per row; `uniforms_R` is fp64. Temperature 0 takes the most likely token."""
    rows = max(1, CHUNK_CELLS // logits_RV.shape[1])
    parts = [_pick(*chunk, params) for chunk in zip(logits_RV.split(rows), uniforms_R.split(rows), strict=True)]
    if len(parts) == 1:
        return parts[0]
    return Picked(
        tokens_R=torch.cat([part.tokens_R for part in parts]),
        logprobs_R=torch.cat([part.logprobs_R for part in parts]),
    )


def _pick(logits_RV: Tensor, uniforms_R: Tensor, params: SamplingParams) -> Picked:
    greedy = params.temperature == 0.0
    logprobs_RV = torch.log_softmax(logits_RV.float() / (1.0 if greedy else params.temperature), dim=-1)
    if greedy:
        tokens_R = logprobs_RV.argmax(dim=-1)
    elif params.top_p >= 1.0 and not 0 < params.top_k < logprobs_RV.shape[1]:
        tokens_R = _inverse_cdf(logprobs_RV.exp(), uniforms_R)
    else:
        tokens_R = _restricted(logprobs_RV, uniforms_R, params)
    return Picked(tokens_R=tokens_R, logprobs_R=logprobs_RV.gather(1, tokens_R[:, None]).squeeze(1))


def _inverse_cdf(weights_RV: Tensor, uniforms_R: Tensor) -> Tensor:
    # fp64: the sum over a vocabulary of 150k fp32 terms would move the borders by more than rare tokens weigh.
    cumulative_RV = weights_RV.cumsum(dim=-1, dtype=torch.float64)
    targets_R1 = (uniforms_R * cumulative_RV[:, -1])[:, None]
    return torch.searchsorted(cumulative_RV, targets_R1, right=True).squeeze(1).clamp(max=weights_RV.shape[1] - 1)


def _restricted(logprobs_RV: Tensor, uniforms_R: Tensor, params: SamplingParams) -> Tensor:
    """Top-k first, then top-p over what top-k kept, renormalised: the order of vLLM and transformers."""
    limit = params.top_k if 0 < params.top_k < logprobs_RV.shape[1] else logprobs_RV.shape[1]
    # Stable: equal probabilities keep token order, so a tie at the border breaks the same way everywhere.
    sorted_RV, order_RV = logprobs_RV.sort(dim=-1, descending=True, stable=True)
    weights_RK = sorted_RV[:, :limit].exp()
    if params.top_p < 1.0:
        cumulative_RK = weights_RK.cumsum(dim=-1, dtype=torch.float64)
        before_RK = cumulative_RK - weights_RK
        keep_RK = before_RK < params.top_p * cumulative_RK[:, -1:]
        keep_RK[:, 0] = True
        weights_RK = weights_RK * keep_RK
    return order_RV.gather(1, _inverse_cdf(weights_RK, uniforms_R)[:, None]).squeeze(1)
