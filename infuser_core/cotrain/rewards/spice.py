"""Reward of SPICE's challenger: a bell curve over the variance of the solver's reward, highest at p = 1/2."""

from math import exp

from infuser_core.cotrain.rewards.variance import reward as variance_of
from infuser_core.schemas import InfluenceScore

NEEDS_INFLUENCE = False
WIDTH = 0.01
"""Variance of the bell."""


def reward(score: InfluenceScore) -> float:
    """exp(-(v - 1/4)^2 / (2 * 0.01)) with v = p (1 - p): 1 at p = 1/2, exp(-3.125) at both ends, never 0."""
    return exp(-((variance_of(score) - 0.25) ** 2) / (2.0 * WIDTH))
