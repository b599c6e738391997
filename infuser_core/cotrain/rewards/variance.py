"""Ablation reward: variance of the solver's reward, the signal that a group-relative update can use."""

from infuser_core.schemas import InfluenceScore

NEEDS_INFLUENCE = False


def reward(score: InfluenceScore) -> float:
    """p (1 - p): 1/4 at p = 1/2, 0 at both ends; p is the solver's accuracy on the question."""
    return score.solver_accuracy * (1.0 - score.solver_accuracy)
