"""Accuracy of generated answer keys: by a labeller, a strong solver, or the majority of the solver's own answers."""

from collections.abc import Sequence

from infuser_core.schemas import KeyAccuracy, Question, QuestionLabel, Rollout, Verdict
from infuser_core.statistics.bootstrap import wilson

_TELLING = (Verdict.CORRECT, Verdict.WRONG)


def key_accuracy(
    labels: Sequence[QuestionLabel], votes: Sequence[bool], *, voters: str = "majority"
) -> list[KeyAccuracy]:
    """One row, none where nothing can be told; `votes` say by question whether most `voters` agree with the key."""
    known = [label.key == "sound" for label in labels if label.key != "unknown"]
    found = known or votes
    if not found:
        return []
    share = sum(found) / len(found)
    low, high = wilson(share, len(found))
    told_by = "labels" if known else voters
    return [KeyAccuracy(told_by=told_by, questions=len(found), accuracy=share, low=low, high=high)]


def majority(questions: Sequence[Question], rollouts: Sequence[Rollout]) -> list[bool]:
    """Whether most right or wrong answers to a written question agree with its key, as its verdicts say."""
    written = {question.question_id for question in questions if question.rollout_id}
    told: dict[str, list[bool]] = {}
    for row in rollouts:
        if row.group_id in written and row.verdict in _TELLING:
            told.setdefault(row.group_id, []).append(row.verdict == Verdict.CORRECT)
    return [2 * sum(votes) > len(votes) for votes in told.values()]


def complaint(row: KeyAccuracy, floor: float) -> str:
    """The warning that an iteration deserves, whose whole interval is below the floor; else empty."""
    if row.high >= floor:
        return ""
    return (
        f"keys right by the {row.told_by} of {row.questions} questions: {row.accuracy:.2f} "
        f"[{row.low:.2f}, {row.high:.2f}], below cotrain.key_floor = {floor:g}: the solver learns what wrong keys "
        "say; a stronger cotrain.generator.model, or cotrain.labels: majority"
    )
