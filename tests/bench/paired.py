"""A difference between two arms over seeds: its interval, what it would take to settle it, and the verdict in words."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from scipy.special import stdtrit


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """INFUSER minus another arm, paired by seed."""

    mean: float
    """Mean over seeds."""
    sd: float
    """Sample standard deviation over seeds."""
    seeds: int
    """Seeds."""
    above: int | None = None
    """Seeds in which it is above 0; None where only the summary is kept."""
    needed: float = 0.0
    """Share of seeds above 0 that the hypothesis asks for, as it was written before the runs."""
    unit: str = "seeds"
    """Noun of what is paired."""
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

    def wanted(self) -> str:
        """Seeds that would find a difference as large as the measured one."""
        enough = (n for n in range(2, 1001) if self.detectable(n) <= abs(self.mean))
        return str(next(enough, "more than 1000"))

    def shown(self) -> str:
        """Mean and interval, and the count of seeds that agree."""
        seeds = (
            f"{self.seeds} {self.unit}" if self.above is None else f"{self.above} of {self.seeds} {self.unit} above 0"
        )
        return f"{self.mean:+.3f} [{self.mean - self.half:+.3f}, {self.mean + self.half:+.3f}], {seeds}"

    def verdict(self, *, printed: bool = True) -> str:
        """Replicates where the interval is above 0, does not where it is below, else what would settle it."""
        if self.mean > self.half and self.above is not None and self.above < self.needed * self.seeds:
            return f"interval above 0, but not in {self.needed:.0%} of seeds: fails as it was written before the runs"
        if abs(self.mean) > self.half:
            above = "replicates" if printed else "holds here; the paper prints no number"
            return above if self.mean > 0 else "does not"
        power = f"{self.seeds} seeds find {self.detectable(self.seeds):.2f}"
        return f"not settled: {self.wanted()} seeds for a difference of this size; {power}"


def paired(
    first: Sequence[float],
    second: Sequence[float],
    *,
    needed: float = 0.0,
    unit: str = "seeds",
    level: float = 0.95,
) -> Difference:
    """First minus second, seed by seed."""
    gaps = [a - b for a, b in zip(first, second, strict=True)]
    above = sum(gap > 0 for gap in gaps)
    return Difference(
        mean=fmean(gaps), sd=stdev(gaps), seeds=len(gaps), above=above, needed=needed, unit=unit, level=level
    )
