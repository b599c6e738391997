"""Control reward: 1 for every valid question, so that the generator learns only to write valid questions."""

from infuser_core.schemas import InfluenceScore

NEEDS_INFLUENCE = False


def reward(score: InfluenceScore) -> float:
    """1 for every question."""
    return 1.0
