"""Answer-level influence as in I-PPO (arXiv 2604.01597): answers that pull against the dev gradient are left out."""

from infuser_core.cotrain.studies.candidates import Candidate


def score(question: Candidate) -> float | None:
    """Sum of the positive ones among the inner products of the answers' gradients and the dev gradient."""
    return None if question.rival is None else sum(max(0.0, dot) for dot in question.rival.answer_dots)
