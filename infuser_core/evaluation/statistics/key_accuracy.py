"""Estimate the share of right keys of generated questions: by a labeller, a strong solver, or the solver's majority."""

from collections.abc import Sequence

from infuser_core.evaluation.statistics.bootstrap import wilson
from infuser_core.schemas import KeyAccuracy, Question, QuestionLabel, Rollout, Verdict

_DECIDED = (Verdict.CORRECT, Verdict.WRONG)


def key_accuracy(
    labels: Sequence[QuestionLabel], votes: Sequence[bool], *, voters: str = "majority"
) -> list[KeyAccuracy]:
    """Share of right keys, as one row: from labels other than unknown, else from votes; no row without either.

    `votes`: whether most `voters` agree with the key, question by question.
    """
    labelled = [label.key == "sound" for label in labels if label.key != "unknown"]
    is_right = labelled or votes
    if not is_right:
        return []
    share = sum(is_right) / len(is_right)
    low, high = wilson(share, len(is_right))
    source = "labels" if labelled else voters
    return [KeyAccuracy(told_by=source, questions=len(is_right), accuracy=share, low=low, high=high)]


def majority_votes(questions: Sequence[Question], rollouts: Sequence[Rollout]) -> list[bool]:
    """Whether most answers judged right or wrong agree with the key, for each generated question that has such ones."""
    generated = {question.question_id for question in questions if question.rollout_id}
    agreement: dict[str, list[bool]] = {}
    for row in rollouts:
        if row.group_id in generated and row.verdict in _DECIDED:
            agreement.setdefault(row.group_id, []).append(row.verdict == Verdict.CORRECT)
    return [2 * sum(votes) > len(votes) for votes in agreement.values()]
