"""Verifiable RLVR: the row carries problem and answer, and no generator is needed (hybrid extension)."""

from dataclasses import replace

from infuser_core.schemas import Question

TEMPLATE = ""
NEEDS_DOCUMENT = False


def given(problem: Question, question_id: str) -> Question:
    """The row's problem with its verifier, under a separate identifier for every iteration."""
    return replace(problem, question_id=question_id, rollout_id="")
