"""Texts of the generator that wait for a score until the answers to all questions on their document have ended."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from infuser_core.phases.training import by_group
from infuser_core.schemas import InfluenceScore, Question, Rollout


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A generator's texts from some documents, with their questions and scores."""

    rollouts: Sequence[Rollout] = ()
    """Its texts."""
    questions: Sequence[Question] = ()
    """The questions among them, and given ones."""
    scores: Sequence[InfluenceScore] = ()
    """Scores of the questions that are answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """Documents by whether they can be rewarded."""

    now: Written
    """Every question has a score. Texts of earlier iterations are in groups of their own: the same document may have
    been read again."""
    later: Written
    """A question has none yet."""
    documents: Mapping[str, str]
    """Document of each text, by its rollout."""


def settle(owed: Written, new: Written) -> Due:
    """Earlier texts first; without any and with a score for every question, `now` is `new`."""
    questions, scores = [*owed.questions, *new.questions], [*owed.scores, *new.scores]
    rollouts = [*(replace(row, group_id=_group(row)) for row in owed.rollouts), *new.rollouts]
    author, scored = {q.question_id: q.rollout_id for q in questions}, {row.question_id for row in scores}
    lacking = {q.rollout_id for q in questions if q.rollout_id and q.question_id not in scored}
    groups = by_group(rollouts)
    open_groups = {name for name, rows in groups.items() if any(row.rollout_id in lacking for row in rows)}
    waiting = {row.rollout_id for row in rollouts if row.group_id in open_groups}
    documents = {row.rollout_id: row.group_id for row in (*owed.rollouts, *new.rollouts)}
    return Due(
        now=Written(
            rollouts=[row for row in rollouts if row.rollout_id not in waiting],
            questions=[q for q in questions if q.rollout_id not in waiting],
            scores=[row for row in scores if author.get(row.question_id) not in waiting],
        ),
        later=Written(
            rollouts=[row for row in (*owed.rollouts, *new.rollouts) if row.rollout_id in waiting],
            questions=[q for q in questions if q.rollout_id in waiting],
            scores=[row for row in scores if author.get(row.question_id) in waiting],
        ),
        documents=documents,
    )


def _group(row: Rollout) -> str:
    """Iteration and document."""
    return row.rollout_id.rpartition("/")[0]
