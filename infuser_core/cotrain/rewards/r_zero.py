"""Reward of R-Zero's challenger: the solver's uncertainty minus a penalty for repetition.

max(0, 1 - 2 |p - 1/2| - |C| / B): p is the share of the solver's answers that were rewarded, C the question's cluster
among the B questions of the iteration. Clusters come from average linkage: two are joined while their mean distance
1 - similarity is at most 1/2; similarity is BLEU on words, up to 4-grams (`statistics/repetition.py`).

This is the paper's formula. The published code has min(p, 1 - p), half as much relative to the penalty, no bound at 0,
and BLEU in one direction.
"""

from collections.abc import Sequence

from infuser_core.evaluation.statistics.repetition import cluster_sizes
from infuser_core.schemas import InfluenceScore, Question

NEEDS_INFLUENCE = False
DISTANCE = 0.5
"""Largest mean distance at which two clusters are joined."""
WEIGHT = 1.0
"""Weight of the repetition penalty."""


def rewards(scores: Sequence[InfluenceScore], questions: Sequence[Question]) -> list[float]:
    """One reward in [0, 1] per question of the iteration."""
    sizes = cluster_sizes([question.text for question in questions], distance=DISTANCE)
    return [
        max(0.0, 1.0 - 2.0 * abs(score.solver_accuracy - 0.5) - WEIGHT * size / len(questions))
        for score, size in zip(scores, sizes, strict=True)
    ]
