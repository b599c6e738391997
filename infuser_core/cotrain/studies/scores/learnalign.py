"""LearnAlign's score (arXiv 2506.11480): agreement with the other candidates' gradients, weighted by learnability.

It needs no dev set. Learnability V = p (1 - p) replaces the norm of the gradient, which grows with short answers.
"""

from infuser_core.cotrain.studies.candidates import Candidate, cosine_of


def score(question: Candidate) -> float | None:
    """Mean over the other candidates j of V V_j cos(g, g_j)."""
    if question.rival is None:
        return None
    rate = question.stored.solver_accuracy
    learnability = rate * (1 - rate)
    norm = float((question.rival.learnable_N @ question.rival.learnable_N) ** 0.5)
    everyone = cosine_of(question.gradient_N, question.rival.learnable_N) * norm
    return learnability * (everyone - learnability) / max(question.rival.candidates - 1, 1)
