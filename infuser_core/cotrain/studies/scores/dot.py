"""Inner product of the question's plain gradient and the dev gradient: long and surprising answers weigh more."""

from infuser_core.cotrain.studies.candidates import Candidate


def score(question: Candidate) -> float:
    """The stored cosine times both norms."""
    return question.stored.raw_cosine * question.stored.gradient_norm * question.stored.reference_norm
