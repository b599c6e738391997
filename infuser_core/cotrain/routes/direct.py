"""Direct route: a data row carries a problem with a verifiable answer, without a generator (hybrid extension)."""

from dataclasses import replace

from infuser_core.schemas import Question

TEMPLATE = ""
NEEDS_DOCUMENT = False


def carry(problem: Question, question_id: str) -> Question:
    """Turn a row's problem, with its verifier, into a question under the iteration's own identifier."""
    return replace(problem, question_id=question_id, rollout_id="")
