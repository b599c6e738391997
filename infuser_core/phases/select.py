"""Checkpoint selection: the validated checkpoint with the highest accuracy (appendix: checkpoint selection)."""

from collections.abc import Sequence

from infuser_core.algorithm.selection import best_index
from infuser_core.schemas import BenchmarkScore, Candidate

VERSION = 1


def select(iterations: Sequence[int], scores: Sequence[BenchmarkScore]) -> list[Candidate]:
    """All candidates in order of iteration, the earliest of the best marked."""
    best = best_index([score.accuracy for score in scores])
    return [
        Candidate(
            at_iteration=iteration,
            checkpoint_id=score.checkpoint_id,
            accuracy=score.accuracy,
            selected=index == best,
        )
        for index, (iteration, score) in enumerate(zip(iterations, scores, strict=True))
    ]
