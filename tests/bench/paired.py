"""A difference between two arms over seeds: its interval, its p value, and the verdict in words."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from scipy.special import stdtr, stdtrit


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """INFUSER minus another arm, paired by seed."""

    mean: float
    """Mean over seeds."""
    sd: float
    """Sample standard deviation over seeds."""
    seeds: int
    """Seeds."""
    above: int
    """Seeds in which it is above 0."""
    needed: float = 0.0
    """Share of seeds above 0 that the hypothesis asks for, as it was written before the runs."""
    level: float = 0.95
    """Confidence of the interval."""

    @property
    def half(self) -> float:
        """Half the t interval."""
        return float(stdtrit(self.seeds - 1, 0.5 + self.level / 2)) * self.sd / math.sqrt(self.seeds)

    def detectable(self, seeds: int) -> float:
        """Smallest true difference that so many seeds find with 80% power at 5%."""
        reach = float(stdtrit(seeds - 1, 0.975) + stdtrit(seeds - 1, 0.8))
        return reach * self.sd / math.sqrt(seeds)

    @property
    def p_value(self) -> float:
        """Two-sided p of a mean of 0."""
        return 2 * float(stdtr(self.seeds - 1, -abs(self.mean) / self.sd * math.sqrt(self.seeds)))

    def shown(self) -> str:
        """Mean and interval, and the count of seeds that agree."""
        interval = f"{self.mean:+.3f} [{self.mean - self.half:+.3f}, {self.mean + self.half:+.3f}]"
        return f"{interval}, {self.above} of {self.seeds} seeds above 0"

    def verdict(self, *, corrected: float, ahead: str = "replicates") -> str:
        """`ahead` above 0, "does not" below, both with `corrected` p under 0.05; else what the seeds could settle."""
        if self.mean > self.half and self.above < self.needed * self.seeds:
            return f"interval above 0, but not in {self.needed:.0%} of seeds: fails as it was written before the runs"
        if abs(self.mean) > self.half and corrected >= 0.05:
            return f"{'above' if self.mean > 0 else 'below'} 0 alone, not when all are corrected"
        if abs(self.mean) > self.half:
            return ahead if self.mean > 0 else "does not"
        return f"not settled: {self.seeds} seeds find {self.detectable(self.seeds):.2f} with 80% power"


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p values, in the order of `p_values`: below 0.05, the family is wrong in 5% of cases at most."""
    adjusted, highest = [0.0] * len(p_values), 0.0
    for rank, at in enumerate(sorted(range(len(p_values)), key=lambda at: p_values[at])):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[at]))
        adjusted[at] = highest
    return adjusted


def paired(
    first: Sequence[float],
    second: Sequence[float],
    *,
    needed: float = 0.0,
    level: float = 0.95,
) -> Difference:
    """First minus second, seed by seed."""
    gaps = [a - b for a, b in zip(first, second, strict=True)]
    above = sum(gap > 0 for gap in gaps)
    return Difference(mean=fmean(gaps), sd=stdev(gaps), seeds=len(gaps), above=above, needed=needed, level=level)
