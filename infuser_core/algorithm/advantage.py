"""Advantage estimators: turn grouped rewards into advantages (eq:gen_advantage, eq:group_batch_std_advantages).

A group holds the rewards of all samples for one prompt, as floats; sizes may differ. Statistics use exact summation
and ddof 1. A group of one row has no baseline: its advantage is 0 and it enters no batch statistic, unless
`single_row="unit"` gives it mean 0 and standard deviation 1, as the authors' code does.
"""

import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Literal

Groups = Sequence[Sequence[float]]
SigmaB = Literal["all", "nonzero"]
SingleRow = Literal["zero", "unit"]

FLAT_RANGE = 1e-12
"""A group whose rewards span at most this has no signal; influence rewards are of order 1e-3 and above."""

EPSILON = 1e-6
"""epsilon of eq:gen_advantage."""


def is_flat(rewards_G: Sequence[float]) -> bool:
    """Whether the group has zero variance and so gives no gradient; groups of fewer than two rows are flat."""
    return len(rewards_G) < 2 or max(rewards_G) - min(rewards_G) <= FLAT_RANGE


def group_sigma(rewards_G: Sequence[float], *, single_row: SingleRow = "zero") -> float:
    """Standard deviation of a group's rewards (sigma_d, ddof 1): 0 for a flat group, 1 for a `unit` single row."""
    if len(rewards_G) == 1 and single_row == "unit":
        return 1.0
    if is_flat(rewards_G):
        return 0.0
    centred_G = centre(rewards_G)
    return math.sqrt(math.fsum(value * value for value in centred_G) / (len(centred_G) - 1))


def batch_sigma(groups: Groups, *, sigma_b: SigmaB = "all", single_row: SingleRow = "zero") -> float:
    """Mean of sigma_d over all groups (paper) or only those with variance (`nonzero`, authors' code): sigma_B."""
    groups = _groups_in_statistics(groups, sigma_b, single_row)
    sigmas = [group_sigma(rewards_G, single_row=single_row) for rewards_G in groups]
    return math.fsum(sigmas) / len(sigmas) if sigmas else 0.0


def pooled_sigma(groups: Groups, *, sigma_b: SigmaB = "all", single_row: SingleRow = "zero") -> float:
    """Standard deviation (ddof 1) of the centred rewards of all groups pooled."""
    groups = _groups_in_statistics(groups, sigma_b, single_row)
    pooled = [value for rewards_G in groups for value in centre(rewards_G, single_row=single_row)]
    if len(pooled) < 2:
        return 0.0
    mean = math.fsum(pooled) / len(pooled)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in pooled) / (len(pooled) - 1))


def centre(rewards_G: Sequence[float], *, single_row: SingleRow = "zero") -> list[float]:
    """Rewards minus their mean; exactly 0 for a flat group, regardless of rounding."""
    if len(rewards_G) == 1 and single_row == "unit":
        return list(rewards_G)
    if is_flat(rewards_G):
        return [0.0] * len(rewards_G)
    mean = math.fsum(rewards_G) / len(rewards_G)
    return [reward - mean for reward in rewards_G]


def mean_centred(groups: Groups, sigma_b: SigmaB, single_row: SingleRow) -> list[list[float]]:
    """The solver's advantage (Dr.GRPO): A = r - mu_d. `sigma_b` has no effect."""
    return [centre(rewards_G, single_row=single_row) for rewards_G in groups]


def leave_one_out(groups: Groups, sigma_b: SigmaB, single_row: SingleRow) -> list[list[float]]:
    """RLOO's advantage, r - mean of the group's other rewards: A = n / (n - 1) (r - mu_d) (arXiv 2402.14740, eq. 9)."""
    centred = mean_centred(groups, sigma_b, single_row)
    return [[value * len(row_G) / max(1, len(row_G) - 1) for value in row_G] for row_G in centred]


def dugrpo(groups: Groups, sigma_b: SigmaB, single_row: SingleRow) -> list[list[float]]:
    """The generator's advantage (eq:gen_advantage): A = (s - mu_d) / (sigma_d + sigma_B + eps)."""
    batch = batch_sigma(groups, sigma_b=sigma_b, single_row=single_row)
    sigmas = [group_sigma(rewards_G, single_row=single_row) for rewards_G in groups]
    return _divide(groups, [sigma + batch for sigma in sigmas], single_row)


def group_std(groups: Groups, sigma_b: SigmaB, single_row: SingleRow) -> list[list[float]]:
    """GRPO's advantage (A_GRPO): A = (s - mu_d) / (sigma_d + eps). `sigma_b` has no effect."""
    return _divide(groups, [group_sigma(rewards_G, single_row=single_row) for rewards_G in groups], single_row)


def batch_mean_std(groups: Groups, sigma_b: SigmaB, single_row: SingleRow) -> list[list[float]]:
    """The paper's batch-normalised ablation (A_BN): A = (s - mu_d) / (sigma_B + eps)."""
    batch = batch_sigma(groups, sigma_b=sigma_b, single_row=single_row)
    return _divide(groups, [batch] * len(groups), single_row)


def batch_pooled_std(groups: Groups, sigma_b: SigmaB, single_row: SingleRow) -> list[list[float]]:
    """Batch normalisation in the authors' code: A = (s - mu_d) / (pooled std + eps)."""
    pooled = pooled_sigma(groups, sigma_b=sigma_b, single_row=single_row)
    return _divide(groups, [pooled] * len(groups), single_row)


NORMALISERS: dict[str, Callable[[Groups, SigmaB, SingleRow], list[list[float]]]] = {
    function.__name__: function
    for function in (mean_centred, leave_one_out, dugrpo, group_std, batch_mean_std, batch_pooled_std)
}
"""Advantage estimators by configuration name."""


def advantages(
    groups: Groups, *, normaliser: str, sigma_b: SigmaB = "all", single_row: SingleRow = "zero"
) -> list[list[float]]:
    """Advantage of every row by the estimator `normaliser`, one of NORMALISERS."""
    return NORMALISERS[normaliser](groups, sigma_b, single_row)


def dugrpo_advantages(
    rewards_R: Sequence[float], groups_R: Sequence[Hashable], *, sigma_b: SigmaB = "all", single_row: SingleRow = "zero"
) -> list[float]:
    """The generator's advantage (eq:gen_advantage) of R rows in any order, for any trainer.

    `rewards_R` are the influence scores, `groups_R` the group of each row, its document. Both may be tensors or arrays
    of shape [R].
    """
    rewards, members = _to_list(rewards_R), dict[Hashable, list[int]]()
    for row, group in enumerate(_to_list(groups_R)):
        members.setdefault(group, []).append(row)
    shaped = dugrpo([[rewards[row] for row in rows] for rows in members.values()], sigma_b, single_row)
    rows = [row for rows in members.values() for row in rows]
    by_row = dict(zip(rows, (value for values_G in shaped for value in values_G), strict=True))
    return [by_row[row] for row in range(len(rewards))]


def _to_list(values_R: Any) -> list[Any]:
    """Values of a sequence, an array or a tensor: tensors of equal numbers are different keys of a dictionary."""
    return values_R.tolist() if hasattr(values_R, "tolist") else list(values_R)


def _groups_in_statistics(groups: Groups, sigma_b: SigmaB, single_row: SingleRow) -> list[Sequence[float]]:
    """Groups that enter batch statistics: a single row only with `unit`, flat ones only with `all`."""

    def counts(rewards_G: Sequence[float]) -> bool:
        if len(rewards_G) == 1:
            return single_row == "unit"
        return len(rewards_G) > 1 if sigma_b == "all" else not is_flat(rewards_G)

    return [rewards_G for rewards_G in groups if counts(rewards_G)]


def _divide(groups: Groups, sigmas: Sequence[float], single_row: SingleRow) -> list[list[float]]:
    """Centred rewards over sigma + eps."""
    return [
        [value / (sigma + EPSILON) if value else 0.0 for value in centre(rewards_G, single_row=single_row)]
        for rewards_G, sigma in zip(groups, sigmas, strict=True)
    ]
