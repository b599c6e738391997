"""Lognormal response lengths, cut at a limit: quantiles, and how far the longest of several is beyond the mean."""

import math
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from statistics import NormalDist

_NORMAL = NormalDist()
_CELLS = 512
"""Cells of the integral: more change the fourth digit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Lengths of one kind of response."""

    mean: float
    """Mean before the cut, tokens."""
    deviation: float
    """Standard deviation over the mean."""
    limit: float
    """Longest possible, tokens."""
    within: float = 1.0
    """Share of the variance between responses to one prompt."""

    def quantile(self, share: float) -> float:
        """Length that a share of the responses does not exceed, at least one token."""
        location, scale = _parameters(self.mean, self.deviation)
        value = self.mean if scale == 0 else math.exp(location + scale * _NORMAL.inv_cdf(share))
        return min(self.limit, max(1.0, value))

    def lengths(self, count: int, *, of: int = 0) -> list[float]:
        """`count` equally likely lengths, in a fixed order without pattern; the longest is that of `of` responses.

        A rank that holds the longest response of a whole phase ends the phase.
        """
        ranked = [self.quantile((place + 0.5) / count) for place in range(count)]
        ranked[-1] = self.quantile(1 - 0.5 / max(count, of))
        # Steps of the golden ratio visit every place once and never run up or down for long.
        return [ranked[place] for place in sorted(range(count), key=lambda place: (place * 0.6180339887498949) % 1)]

    def longest(self, of: int, *, rows: float = 1, prompt: float = 0.0) -> float:
        """Expected largest of `of` sums of `rows` responses with their prompts, tokens."""
        return rows * prompt + _longest(self.mean, self.deviation, self.limit, of, rows)

    def longest_beside(self, of: int, *, rows: float, prompt: float) -> float:
        """The same where the sums are over responses to the same prompts: only what differs within a prompt counts."""
        deviation = self.deviation * math.sqrt(self.within)
        return rows * prompt + _longest(self.mean_cut(), deviation, self.limit, of, rows)

    def mean_cut(self) -> float:
        """Mean after the cut, tokens."""
        return _longest(self.mean, self.deviation, self.limit, 1, 1)


def _parameters(mean: float, deviation: float) -> tuple[float, float]:
    variance = math.log1p(deviation * deviation)
    return math.log(mean) - variance / 2, math.sqrt(variance)


@cache
def _longest(mean: float, deviation: float, limit: float, of: int, rows: float) -> float:
    """A sum of lognormals is taken as the lognormal of the same mean and variance (Fenton and Wilkinson)."""
    total, relative, top = mean * rows, deviation / math.sqrt(rows), limit * rows
    if relative == 0:
        return min(total, top)
    location, scale = _parameters(total, relative)
    # E[min(max, top)] = integral of 1 - F^of, over a grid that is fine where the lengths are.
    edges = [min(top, math.exp(location + scale * (12 * cell / _CELLS - 6))) for cell in range(_CELLS + 1)]
    result = edges[0]
    for low, high in pairwise(edges):
        middle = (low + high) / 2
        if high > low:
            result += (high - low) * (1 - _NORMAL.cdf((math.log(middle) - location) / scale) ** of)
    return result
