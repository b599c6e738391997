"""Ablation reward: harder questions earn more, as long as the solver sometimes succeeds."""

from infuser_core.schemas import InfluenceScore

NEEDS_INFLUENCE = False


def reward(score: InfluenceScore) -> float:
    """1 - p for 0 < p < 1, else 0; p is the solver's accuracy on the question."""
    accuracy = score.solver_accuracy
    return 1.0 - accuracy if 0.0 < accuracy < 1.0 else 0.0
