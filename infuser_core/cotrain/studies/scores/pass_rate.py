"""Variance of the question's rewards as a score: pass rates near one half rank first."""

from infuser_core.cotrain.rewards.variance import reward as variance_of
from infuser_core.cotrain.studies.candidates import Candidate


def score(question: Candidate) -> float:
    """Variance of right and wrong answers, p (1 - p)."""
    return variance_of(question.stored)
