"""LearnAlign's score with the dev gradient in the place of the other candidates' gradients."""

from infuser_core.cotrain.rewards.variance import reward as variance_of
from infuser_core.cotrain.studies.candidates import Candidate


def score(question: Candidate) -> float:
    """p (1 - p) cos(g, g_dev)."""
    return variance_of(question.stored) * question.stored.raw_cosine
