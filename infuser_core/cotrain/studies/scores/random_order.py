"""Random order as a score: the control that every other score must beat."""

from infuser_core.cotrain.studies.candidates import Candidate
from infuser_core.seeding import seed_of


def score(question: Candidate) -> float:
    """A number in [0, 1) that depends on the question's id alone."""
    return seed_of(0, "random score", question.stored.question_id) / 2**63
