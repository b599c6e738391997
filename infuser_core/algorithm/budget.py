"""Split a batch of documents among arms (domains, sources, routes) by fixed weights or by a bandit on influence.

The bandit is the sliding-window upper confidence bound of Garivier and Moulines (2011) for rewards that drift, applied
in batches: documents are assigned one at a time, and each assignment narrows the arm's bound as if the document had
earned the arm's mean reward. The spread of all rewards in the window replaces the unknown range, so rewards may have
any unit.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import fmean, pstdev


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """An arm of the bandit: its number of documents and its recent rewards."""

    room: int
    """Number of the arm's documents."""
    rewards: Sequence[float] = ()
    """Mean influence of each document that was drawn and measured in the window."""
    silent: bool = False
    """Whether its documents were drawn in the window but none was scored, as for a route without influence scores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """The bandit's result for one arm: its share of the batch, with the mean and the bound that led to it."""

    share: float
    """Share of the batch; all shares sum to 1."""
    mean: float | None
    """Mean reward in the window; None without a measurement."""
    bound: float | None
    """Upper confidence bound before the batch; None without a measurement."""


def bandit(
    arms: Mapping[str, Arm], count: int, *, exploration: float, floor: float, fixed: Mapping[str, float]
) -> dict[str, Estimate]:
    """Shares of all arms in a batch of `count` documents: `fixed` shares as given, at least `floor` for each other arm.

    The floor is at most an equal share. Silent arms get only the floor. While none of the arms that are not fixed has a
    reward, they share in proportion to their sizes, as in a draw from the entire pool.
    """
    free = {name: arm for name, arm in arms.items() if name not in fixed}
    rest = 1.0 - sum(share for name, share in fixed.items() if name in arms)
    least = min(floor, rest / len(free)) if free else 0.0
    preferred = _share_by_bound(free, count, exploration)
    bounds = _bounds(arms, exploration)
    return {
        name: Estimate(
            share=fixed[name] if name in fixed else least + (rest - least * len(free)) * preferred[name],
            mean=fmean(arm.rewards) if arm.rewards else None,
            bound=bounds[name],
        )
        for name, arm in arms.items()
    }


def _share_by_bound(arms: Mapping[str, Arm], count: int, exploration: float) -> dict[str, float]:
    """Shares before the floor is applied: assign documents one by one to the arm with the highest bound."""
    if not any(arm.rewards for arm in arms.values()):
        size = sum(arm.room for arm in arms.values())
        return {name: arm.room / size for name, arm in arms.items()}
    placed = dict.fromkeys(arms, 0)
    for _ in range(count):
        bounds = _bounds(arms, exploration, placed)
        able = [name for name, arm in arms.items() if not arm.silent and placed[name] < arm.room]
        if not able:
            break
        # Arms without a measurement come first.
        placed[max(sorted(able), key=lambda name: math.inf if (bound := bounds[name]) is None else bound)] += 1
    return {name: number / max(1, sum(placed.values())) for name, number in placed.items()}


def _bounds(
    arms: Mapping[str, Arm], exploration: float, placed: Mapping[str, int] | None = None
) -> dict[str, float | None]:
    """Upper confidence bound of each arm: mean + exploration * spread * sqrt(2 ln N / n); None if n is 0.

    n counts the arm's rewards and placed documents, N those of all arms.
    """
    measured = [reward for arm in arms.values() for reward in arm.rewards]
    placed = placed or {}
    total = len(measured) + sum(placed.values())
    bounds: dict[str, float | None] = {}
    for name, arm in arms.items():
        pulls = len(arm.rewards) + placed.get(name, 0)
        mean = fmean(arm.rewards or measured or [0.0])
        width = exploration * pstdev(measured) * math.sqrt(2 * math.log(total) / pulls) if pulls and measured else 0
        bounds[name] = mean + width if pulls else None
    return bounds


def quotas(weights: Mapping[str, float], room: Mapping[str, int], count: int) -> dict[str, Fraction]:
    """Exact number of documents per arm, in proportion to the weights; other arms make up what an exhausted arm lacks.

    The numbers sum to `count`, or to the room of the arms with a positive weight if that is less.
    """
    open_arms = {name: Fraction(weight) for name, weight in weights.items() if weight > 0 and room[name] > 0}
    result = dict.fromkeys(weights, Fraction(0))
    remaining = Fraction(min(count, sum(room[name] for name in open_arms)))
    while open_arms:
        mass = sum(open_arms.values())
        full = [name for name, weight in open_arms.items() if remaining * weight >= room[name] * mass]
        if not full:
            return result | {name: remaining * weight / mass for name, weight in open_arms.items()}
        for name in full:
            result[name] = Fraction(room[name])
            remaining -= room[name]
            del open_arms[name]
    return result


def round_quotas(quotas: Mapping[str, Fraction], offset: float) -> dict[str, int]:
    """Round each quota down or up without changing their sum, by systematic sampling with an offset in [0, 1).

    Averaged over a uniform offset an arm gets its quota, so that rounding does not exclude small shares forever.
    """
    counts: dict[str, int] = {}
    reached, before = Fraction(0), math.floor(Fraction(offset))
    for name in sorted(quotas):
        reached += quotas[name]
        now = math.floor(reached + Fraction(offset))
        counts[name], before = now - before, now
    return counts
