"""The paper's reward: alignment of AdamW's step on a question with the dev gradient (eq:estimated_influence_score)."""

from infuser_core.schemas import InfluenceScore

NEEDS_INFLUENCE = True


def reward(score: InfluenceScore) -> float:
    """Configured influence score of the question; 0 if it could not be scored."""
    return score.score
