"""LearnAlign's score with the dev gradient in the place of the other candidates' gradients."""

from infuser_core.cotrain.studies.candidates import Candidate


def score(question: Candidate) -> float:
    """p (1 - p) cos(g, g_dev)."""
    return question.stored.solver_accuracy * (1 - question.stored.solver_accuracy) * question.stored.raw_cosine
