"""Partial rollouts: answers that an iteration does not wait for go on in the next, under its weights.

An iteration draws no more tokens of an answer than most of the last iteration's answers had (a budget of tokens, as in
Kimi k1.5, arXiv 2501.12599). So the same answers are cut on any number of engines, whichever of them is ahead, and by a
run that was killed in between.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Unpack

from infuser_core.engines.protocols import Sampler
from infuser_core.phases.answering import UNFINISHED, AnswerSettings, Draw, draw_answers, judged
from infuser_core.phases.training import by_group
from infuser_core.schemas import Question, Rollout


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """The part of an answer that one iteration drew."""

    rollout_id: str
    """The answer."""
    checkpoint_id: str
    """Checkpoint that drew the part."""
    start: int
    """Tokens that the answer had before."""
    tokens: int
    """Tokens drawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Questions of which an answer is unfinished at the end of an iteration."""

    questions: Sequence[Question] = ()
    """The questions."""
    rollouts: Sequence[Rollout] = ()
    """All of their answers, finished ones without a verdict."""
    segments: Sequence[Segment] = ()
    """Parts of answers that the iteration drew, of these questions and of all others."""


def budget(segments: Sequence[Segment], share: float, max_tokens: int) -> int:
    """Tokens that a share of an iteration's answers did not exceed, finished or not.

    While fewer than that share end in an iteration it does not fall, and longer answers raise it. `max_tokens` where
    nothing was drawn before, or all are waited for.
    """
    if share == 1 or not segments:
        return max_tokens
    lengths = sorted(segment.start + segment.tokens for segment in segments)
    return min(max_tokens, lengths[math.ceil(share * len(lengths)) - 1])


def answer_in_part(
    questions: Sequence[Question],
    before: Waiting,
    sampler: Sampler,
    settings: AnswerSettings,
    *,
    share: float,
    scope: str,
    **how: Unpack[Draw],
) -> tuple[list[Question], list[Rollout], Waiting]:
    """Go on with what waits and begin the questions, as far as the last iteration's budget goes, in whole groups.

    Returns the questions whose answers have all ended, these answers, judged, and what waits for the next iteration.
    """
    tokens = budget(before.segments, share, settings.max_tokens)
    drafts = draw_answers(questions, sampler, settings, before=before.rollouts, tokens=tokens, scope=scope, **how)
    groups, every = by_group(drafts), [*before.questions, *questions]
    late = {name for name, rows in groups.items() if any(row.finish_reason == UNFINISHED for row in rows)}
    ended = [row for row in every if row.question_id not in late]
    waiting = Waiting(
        questions=[row for row in every if row.question_id in late],
        rollouts=[row for row in drafts if row.group_id in late],
        segments=_segments(before.rollouts, drafts, how["checkpoint_id"]),
    )
    return ended, judged([row for row in drafts if row.group_id not in late], ended, settings.box), waiting


def _segments(before: Sequence[Rollout], drafts: Sequence[Rollout], checkpoint_id: str) -> list[Segment]:
    starts = {row.rollout_id: len(row.token_ids) for row in before}
    grown = [(row, starts.get(row.rollout_id, 0)) for row in drafts]
    return [
        Segment(rollout_id=row.rollout_id, checkpoint_id=checkpoint_id, start=start, tokens=len(row.token_ids) - start)
        for row, start in grown
        if len(row.token_ids) > start
    ]
