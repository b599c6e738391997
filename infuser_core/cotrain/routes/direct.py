"""Verifiable RLVR: the row carries problem and answer, so that no generator writes anything (hybrid extension)."""

from dataclasses import replace

from infuser_core.schemas import Question

TEMPLATE = ""
NEEDS_DOCUMENT = False


def given(problem: Question, question_id: str) -> Question:
    """The row's problem, with the row's verifier, under an identifier of its own for every iteration that asks it."""
    return replace(problem, question_id=question_id, rollout_id="")
