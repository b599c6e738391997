"""The paper's reward: how well AdamW's step on the question follows the dev gradient (eq:estimated_influence_score)."""

from infuser_core.schemas import InfluenceScore

NEEDS_INFLUENCE = True


def reward(score: InfluenceScore) -> float:
    """The configured influence score; 0 for questions without a direction."""
    return score.score
