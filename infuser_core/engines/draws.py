"""Draw one token per row from logits, by uniform random numbers that a row's seed and the token's position determine.

Shapes: _R rows, _V vocabulary, _K candidate tokens.
"""

import torch
from torch import Tensor

from infuser_core.protocols import SamplingParams

GOLDEN, FIRST, SECOND = -0x61C8864680B583EB, -0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15
"""Increment and multipliers of the splitmix64 generator, as signed numbers: torch has no arithmetic on uint64."""

CHUNK_CELLS = 1 << 25
"""Logits handled at a time: fp64 cumulative sums of this many take 256 MiB."""


def _shift(bits: Tensor, count: int) -> Tensor:
    """Shift right, zeros from the left."""
    return (bits >> count) & ((1 << (64 - count)) - 1)


def _mix(bits: Tensor) -> Tensor:
    bits = (bits ^ _shift(bits, 30)) * FIRST
    bits = (bits ^ _shift(bits, 27)) * SECOND
    return bits ^ _shift(bits, 31)


def uniforms(seeds_R: Tensor, position: int | Tensor) -> Tensor:
    """Compute one fp64 number in [0, 1) per int64 seed for the token at `position` (splitmix64 finaliser, twice).

    `position` is one number, or an int64 one per row. The same bits on every device.
    """
    # The first mix separates neighbouring seeds, which would otherwise be shifted copies of one stream.
    bits = _mix(_mix(seeds_R + GOLDEN) + GOLDEN * (torch.as_tensor(position, device=seeds_R.device) + 1))
    return _shift(bits, 11).double() * 2.0**-53


def pick_tokens(logits_RV: Tensor, uniforms_R: Tensor, params: SamplingParams) -> tuple[Tensor, Tensor]:
    """Pick one token per row; also returns its log-probability at the temperature, before top-k and top-p: nats, fp32.

    `uniforms_R` is fp64. Temperature 0 takes the most likely token.
    """
    rows = max(1, CHUNK_CELLS // logits_RV.shape[1])
    parts = [_pick_chunk(*chunk, params) for chunk in zip(logits_RV.split(rows), uniforms_R.split(rows), strict=True)]
    tokens_R, logprobs_R = (torch.cat(each) for each in zip(*parts, strict=True))
    return tokens_R, logprobs_R


def _pick_chunk(logits_RV: Tensor, uniforms_R: Tensor, params: SamplingParams) -> tuple[Tensor, Tensor]:
    greedy = params.temperature == 0.0
    logprobs_RV = torch.log_softmax(logits_RV.float() / (1.0 if greedy else params.temperature), dim=-1)
    if greedy:
        tokens_R = logprobs_RV.argmax(dim=-1)
    elif params.top_p >= 1.0 and not 0 < params.top_k < logprobs_RV.shape[1]:
        tokens_R = _sample_inverse_cdf(logprobs_RV.exp(), uniforms_R)
    else:
        tokens_R = _sample_restricted(logprobs_RV, uniforms_R, params)
    return tokens_R, logprobs_RV.gather(1, tokens_R[:, None]).squeeze(1)


def _sample_inverse_cdf(weights_RV: Tensor, uniforms_R: Tensor) -> Tensor:
    # In fp64: in fp32, the cumulative sum over 150k tokens has errors larger than the probabilities of rare tokens.
    cumulative_RV = weights_RV.cumsum(dim=-1, dtype=torch.float64)
    targets_R1 = (uniforms_R * cumulative_RV[:, -1])[:, None]
    return torch.searchsorted(cumulative_RV, targets_R1, right=True).squeeze(1).clamp(max=weights_RV.shape[1] - 1)


def _sample_restricted(logprobs_RV: Tensor, uniforms_R: Tensor, params: SamplingParams) -> Tensor:
    """Sample after top-k, then top-p over the remaining tokens, renormalised: the order of vLLM and transformers."""
    limit = params.top_k if 0 < params.top_k < logprobs_RV.shape[1] else logprobs_RV.shape[1]
    sorted_RK, order_RK = _largest(logprobs_RV, limit)
    weights_RK = sorted_RK.exp()
    if params.top_p < 1.0:
        cumulative_RK = weights_RK.cumsum(dim=-1, dtype=torch.float64)
        before_RK = cumulative_RK - weights_RK
        keep_RK = before_RK < params.top_p * cumulative_RK[:, -1:]
        keep_RK[:, 0] = True
        weights_RK = weights_RK * keep_RK
    return order_RK.gather(1, _sample_inverse_cdf(weights_RK, uniforms_R)[:, None]).squeeze(1)


def _largest(values_RV: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the `count` largest values of each row in falling order, and their places; equal ones keep token order."""
    if values_RV.device.type == "cuda":
        return _largest_by_key(values_RV, count)
    if count < values_RV.shape[1]:
        top_RK = values_RV.topk(count, dim=-1, sorted=False)
        # If further values equal the smallest selected one, or a row has NaN, the whole row must be sorted.
        if bool(((values_RV >= top_RK.values.amin(-1, keepdim=True)).sum(-1) == count).all()):
            places_RK = top_RK.indices.sort(dim=-1).values
            sorted_RK, order_RK = values_RV.gather(1, places_RK).sort(dim=-1, descending=True, stable=True)
            return sorted_RK, places_RK.gather(1, order_RK)
    sorted_RV, order_RV = values_RV.sort(dim=-1, descending=True, stable=True)
    return sorted_RV[:, :count], order_RV[:, :count]


def _largest_by_key(values_RV: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Do what `_largest` does to fp32 values without asking the device about ties: keys hold value and place."""
    bits_RV = (values_RV + 0.0).view(torch.int32).long()
    rank_RV = torch.where(bits_RV < 0, bits_RV ^ 0x7FFFFFFF, bits_RV)
    places_V = torch.arange(values_RV.shape[1] - 1, -1, -1, device=values_RV.device)
    order_RK = (rank_RV << 32 | places_V).topk(count, dim=-1).indices
    return values_RV.gather(1, order_RK), order_RK
