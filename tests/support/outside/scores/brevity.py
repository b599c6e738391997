"""Long answers first."""

from infuser_core.cotrain.studies.candidates import Candidate


def score(question: Candidate) -> float:
    return question.tokens
