"""Control: every valid question is worth the same, so the generator learns validity and nothing else."""

from infuser_core.schemas import InfluenceScore

NEEDS_INFLUENCE = False


def reward(score: InfluenceScore) -> float:
    """1 for every question."""
    return 1.0
