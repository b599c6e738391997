"""GradAlign's score with its optimizer option (arXiv 2602.21492): AdamW's root divides the dev gradient alone."""

from infuser_core.cotrain.studies.candidates import Candidate, cosine_of


def score(question: Candidate) -> float:
    """cos(g, g_dev / (sqrt(v / (1 - b2^t)) + eps))."""
    return cosine_of(question.gradient_N, question.dev_N / question.root_N)
