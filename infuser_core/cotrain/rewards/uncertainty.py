"""Ablation reward: the solver's uncertainty, 1 - 2 |p - 1/2| for its accuracy p on the question."""

from infuser_core.schemas import InfluenceScore

NEEDS_INFLUENCE = False


def reward(score: InfluenceScore) -> float:
    """1 at p = 1/2, falling linearly to 0 at p = 0 and p = 1; p is the solver's accuracy on the question."""
    return 1.0 - 2.0 * abs(score.solver_accuracy - 0.5)
