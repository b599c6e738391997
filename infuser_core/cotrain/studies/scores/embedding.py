"""Semantic similarity to the dev set as a score: means of the solver's last hidden states over a question's text."""

from infuser_core.cotrain.studies.candidates import Candidate


def score(question: Candidate) -> float | None:
    """Mean cosine of the question's embedding and those of the dev questions."""
    return None if question.rival is None else question.rival.similarity
