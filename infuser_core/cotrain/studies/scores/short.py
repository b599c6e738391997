"""Questions with short answers first."""

from infuser_core.cotrain.studies.candidates import Candidate


def score(question: Candidate) -> float:
    """Mean number of answer tokens, negative."""
    return -question.tokens
