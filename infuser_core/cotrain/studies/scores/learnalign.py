"""LearnAlign's score (arXiv 2506.11480): agreement with the other candidates' gradients, weighted by learnability.

It needs no dev set. Learnability V = p (1 - p) replaces the norm of the gradient, which grows with short answers.
"""

import numpy as np

from infuser_core.cotrain.rewards.variance import reward as variance_of
from infuser_core.cotrain.studies.candidates import Candidate, cosine_of


def score(question: Candidate) -> float | None:
    """Mean over the other candidates j of V V_j cos(g, g_j)."""
    if question.rival is None:
        return None
    learnability, everyone_N = variance_of(question.stored), question.rival.learnable_N
    everyone = cosine_of(question.gradient_N, everyone_N) * float(np.linalg.norm(everyone_N))
    return learnability * (everyone - learnability) / max(question.rival.candidates - 1, 1)
