"""Difficulty as a score: hard questions rank first."""

from infuser_core.cotrain.studies.candidates import Candidate


def score(question: Candidate) -> float:
    """Share of wrong answers, 1 - p."""
    return 1 - question.stored.solver_accuracy
