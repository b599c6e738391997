"""Cosine of the question's plain gradient and the dev gradient."""

from infuser_core.cotrain.studies.candidates import Candidate


def score(question: Candidate) -> float:
    """The cosine of the plain gradient, as the run stored it."""
    return question.stored.raw_cosine
