"""Control reward: the solver's uncertainty times lexical similarity to the dev set. It takes no gradient."""

from collections.abc import Sequence

from infuser_core.cotrain.rewards import bm25, uncertainty
from infuser_core.schemas import InfluenceScore, Question

NEEDS_INFLUENCE = False
NEEDS_DEV = True


def rewards(scores: Sequence[InfluenceScore], questions: Sequence[Question], dev: Sequence[Question]) -> list[float]:
    """1 - 2 |p - 1/2| of each question times its BM25."""
    similarity = bm25.rewards(scores, questions, dev)
    return [uncertainty.reward(row) * own for row, own in zip(scores, similarity, strict=True)]
