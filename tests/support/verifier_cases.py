"""What the verifier tests share: a question made of its answer, and short names of the verdicts."""

from infuser_core.schemas import Question, Verdict
from infuser_core.verifiers.parts.grading import Grading, as_text

CORRECT, WRONG, NO_ANSWER, UNVERIFIED = Verdict.CORRECT, Verdict.WRONG, Verdict.NO_ANSWER, Verdict.UNVERIFIED


def question(
    answer: str,
    *,
    choices: int = 4,
    verifier: str = "",
    route: str = "",
    text: str = "?",
    grading: Grading | None = None,
) -> Question:
    """A question of which nothing but what is given matters."""
    return Question(
        question_id="q", text=text, choices=[str(n) for n in range(choices)], answer=answer, verifier=verifier,
        domain="", subdomain="",
        grading=as_text(grading or Grading(route=route)),
    )  # fmt: skip
