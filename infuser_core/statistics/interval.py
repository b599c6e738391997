"""The 95% interval of an accuracy (Wilson): honest at 0 and 1, where a bootstrap has no width."""

import math
from dataclasses import dataclass

Z = 1.959964
"""97.5% quantile of the normal distribution."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A 95% interval of an accuracy."""

    low: float
    """Lower end."""
    high: float
    """Upper end."""


def wilson(accuracy: float, count: int, *, z: float = Z) -> Interval:
    """Wilson score interval of a share over `count` questions, the unit that was sampled.

    With several samples per question `count` stays the number of questions, which is conservative.
    """
    if count == 0:
        return Interval(low=0.0, high=1.0)
    spread = z * math.sqrt(accuracy * (1 - accuracy) / count + z * z / (4 * count * count))
    centre, scale = accuracy + z * z / (2 * count), 1 + z * z / count
    return Interval(low=max(0.0, (centre - spread) / scale), high=min(1.0, (centre + spread) / scale))
