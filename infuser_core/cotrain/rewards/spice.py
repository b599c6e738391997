"""Reward of SPICE's challenger: a bell curve over the variance of the solver's reward, highest at p = 1/2."""

from math import exp

from infuser_core.schemas import InfluenceScore

NEEDS_INFLUENCE = False
WIDTH = 0.01
"""Variance of the bell."""


def reward(score: InfluenceScore) -> float:
    """exp(-(v - 1/4)^2 / (2 * 0.01)) with v = p (1 - p): 1 at p = 1/2, exp(-3.125) at both ends, never 0."""
    variance = score.solver_accuracy * (1.0 - score.solver_accuracy)
    return exp(-((variance - 0.25) ** 2) / (2.0 * WIDTH))
