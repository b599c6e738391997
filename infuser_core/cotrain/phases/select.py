"""Select a checkpoint by validation accuracy (appendix: checkpoint selection), with the noise of the selection."""

import math
from collections.abc import Mapping, Sequence

from infuser_core.schemas import BenchmarkScore, Candidate, QuestionScore

VERSION = 2


def select(
    iterations: Sequence[int],
    scores: Sequence[BenchmarkScore],
    questions: Sequence[Sequence[QuestionScore]],
    *,
    rule: str = "best",
) -> list[Candidate]:
    """List the candidate checkpoints in order of iteration, with the selected one marked.

    `best` selects the highest accuracy, the earliest of ties. `within_noise` selects the earliest candidate whose
    accuracy is less than one standard error of the difference, paired by question, below the best.
    """
    best = best_index([score.accuracy for score in scores])
    shares = [{row.question_id: row.num_correct / max(1, row.num_samples) for row in rows} for rows in questions]
    behind = [scores[best].accuracy - score.accuracy for score in scores]
    errors = [_paired_error(shares[best], other) for other in shares]
    within_noise = [gap == 0 or gap < error for gap, error in zip(behind, errors, strict=True)]
    winner = within_noise.index(True) if rule == "within_noise" else best
    return [
        Candidate(
            at_iteration=iteration,
            checkpoint_id=score.checkpoint_id,
            accuracy=score.accuracy,
            selected=index == winner,
            behind=behind[index],
            behind_error=errors[index],
        )
        for index, (iteration, score) in enumerate(zip(iterations, scores, strict=True))
    ]


def best_index(accuracies: Sequence[float]) -> int:
    """Index of the highest validation accuracy; the earliest wins ties. ValueError if there is none or one is NaN."""
    if not accuracies:
        raise ValueError("no validation accuracy to choose from; evaluate at least one checkpoint")
    if any(math.isnan(accuracy) for accuracy in accuracies):
        raise ValueError(f"a validation accuracy is not a number: {list(accuracies)}; evaluate that checkpoint again")
    return max(range(len(accuracies)), key=lambda index: (accuracies[index], -index))


def _paired_error(best: Mapping[str, float], other: Mapping[str, float]) -> float:
    """Standard error of the mean difference over the questions that both answered; 0 for fewer than two."""
    differences = [best[name] - other[name] for name in best if name in other]
    if len(differences) < 2:
        return 0.0
    mean = sum(differences) / len(differences)
    variance = sum((value - mean) ** 2 for value in differences) / (len(differences) - 1)
    return math.sqrt(variance / len(differences))
