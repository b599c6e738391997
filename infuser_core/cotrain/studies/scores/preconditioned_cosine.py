"""The paper's score: cosine of AdamW's step on the question and the dev gradient (eq:estimated_influence_score)."""

from infuser_core.cotrain.studies.candidates import Candidate


def score(question: Candidate) -> float:
    """The cosine of AdamW's step, as the run stored it."""
    return question.stored.cosine
