"""Score of the attribution library bergson with Adam's moments: AdamW's frozen root divides both gradients."""

from infuser_core.cotrain.studies.candidates import Candidate, cosine_of


def score(question: Candidate) -> float:
    """cos(g / r, g_dev / r) with r = sqrt(v / (1 - b2^t)) + eps."""
    return cosine_of(question.gradient_N / question.root_N, question.dev_N / question.root_N)
