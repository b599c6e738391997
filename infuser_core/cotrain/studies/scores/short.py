"""Brevity as a score: questions with short answers rank first."""

from infuser_core.cotrain.studies.candidates import Candidate


def score(question: Candidate) -> float:
    """Mean number of answer tokens, negative."""
    return -question.tokens
