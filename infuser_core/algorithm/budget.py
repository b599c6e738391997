"""Sharing of a batch of documents among arms (domains, sources, routes): fixed weights, or a bandit on influence.

The bandit is the sliding-window upper confidence bound of Garivier and Moulines (2011) for rewards that drift, in
batches: documents are placed one after the other, and each one placed narrows its arm's bound as if it came out at the
arm's mean. The spread of all rewards of the window stands for the unknown range, so the unit of the reward is free.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import fmean, pstdev


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """Room and recent rewards of one arm."""

    room: int
    """Documents that it has."""
    rewards: Sequence[float] = ()
    """Mean influence of each document drawn from it in the window that could be measured."""
    silent: bool = False
    """Drawn in the window without a single measurement, as a route that bypasses the influence score is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """The bandit's estimate of one arm."""

    share: float
    """Share of the batch; all shares sum to 1."""
    mean: float | None
    """Mean reward in the window; None without a measurement."""
    bound: float | None
    """Upper confidence bound before the batch; None without a measurement."""


def bandit(
    arms: Mapping[str, Arm], count: int, *, exploration: float, floor: float, fixed: Mapping[str, float]
) -> dict[str, Estimate]:
    """Shares of a batch of `count` documents. `fixed` arms keep theirs; the others have at least `floor` each.

    A floor above an equal share is an equal share. Silent arms have the floor alone. While no arm at all has a
    measurement, the free arms share by size, as a draw from the whole pool would.
    """
    free = {name: arm for name, arm in arms.items() if name not in fixed}
    rest = 1.0 - sum(share for name, share in fixed.items() if name in arms)
    least = min(floor, rest / len(free)) if free else 0.0
    leaning = _leaning(free, count, exploration)
    bounds = _bounds(arms, exploration)
    return {
        name: Estimate(
            share=fixed[name] if name in fixed else least + (rest - least * len(free)) * leaning[name],
            mean=fmean(arm.rewards) if arm.rewards else None,
            bound=bounds[name],
        )
        for name, arm in arms.items()
    }


def _leaning(arms: Mapping[str, Arm], count: int, exploration: float) -> dict[str, float]:
    """Shares before the floor: of documents placed one by one on the highest bound."""
    if not any(arm.rewards for arm in arms.values()):
        size = sum(arm.room for arm in arms.values())
        return {name: arm.room / size for name, arm in arms.items()}
    placed = dict.fromkeys(arms, 0)
    for _ in range(count):
        bounds = _bounds(arms, exploration, placed)
        able = [name for name, arm in arms.items() if not arm.silent and placed[name] < arm.room]
        if not able:
            break
        placed[max(sorted(able), key=lambda name: _infinite(bounds[name]))] += 1
    return {name: number / max(1, sum(placed.values())) for name, number in placed.items()}


def _infinite(bound: float | None) -> float:
    """Arms that were never measured are tried first."""
    return math.inf if bound is None else bound


def _bounds(
    arms: Mapping[str, Arm], exploration: float, placed: Mapping[str, int] | None = None
) -> dict[str, float | None]:
    """mean + exploration * spread * sqrt(2 ln N / n); None where n is 0."""
    measured = [reward for arm in arms.values() for reward in arm.rewards]
    placed = placed or {}
    everything = len(measured) + sum(placed.values())
    found: dict[str, float | None] = {}
    for name, arm in arms.items():
        pulls = len(arm.rewards) + placed.get(name, 0)
        mean = fmean(arm.rewards or measured or [0.0])
        width = (
            exploration * pstdev(measured) * math.sqrt(2 * math.log(everything) / pulls) if pulls and measured else 0
        )
        found[name] = mean + width if pulls else None
    return found


def quotas(weights: Mapping[str, float], room: Mapping[str, int], count: int) -> dict[str, Fraction]:
    """Documents per arm in proportion to the weights, exactly; what an exhausted arm lacks the others take over.

    They sum to `count`, or to the room of the arms with a positive weight where that is less.
    """
    open_arms = {name: Fraction(weight) for name, weight in weights.items() if weight > 0 and room[name] > 0}
    found = dict.fromkeys(weights, Fraction(0))
    left = Fraction(min(count, sum(room[name] for name in open_arms)))
    while open_arms:
        mass = sum(open_arms.values())
        full = [name for name, weight in open_arms.items() if left * weight >= room[name] * mass]
        if not full:
            return found | {name: left * weight / mass for name, weight in open_arms.items()}
        for name in full:
            found[name] = Fraction(room[name])
            left -= room[name]
            del open_arms[name]
    return found


def whole(quotas: Mapping[str, Fraction], offset: float) -> dict[str, int]:
    """Each quota rounded down or up, with their sum unchanged: systematic sampling with an offset in [0, 1).

    Over a uniform offset an arm gets its quota on average, so that small shares are not lost to rounding for good.
    """
    found: dict[str, int] = {}
    reached, before = Fraction(0), math.floor(Fraction(offset))
    for name in sorted(quotas):
        reached += quotas[name]
        now = math.floor(reached + Fraction(offset))
        found[name], before = now - before, now
    return found
