"""The scores that studies compare, by name, and what they may know of a question. Legend: _N parameters."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from infuser_core.algorithm.score import cosine
from infuser_core.schemas import InfluenceScore

PAPER = "preconditioned_cosine"
"""The paper's score."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A scored question."""

    stored: InfluenceScore
    """The run's own score and its parts."""
    tokens: float
    """Mean length of its answers."""
    on_target: bool | None
    """Whether its topic is one of the dev questions'; None where nobody labelled it."""
    right_key: bool | None
    """Whether its reference answer is right; None where nobody knows."""
    gradient_N: np.ndarray
    """Gradient of its objective, ascent direction."""
    dev_N: np.ndarray
    """The dev gradient."""
    root_N: np.ndarray
    """sqrt(v / (1 - b2^t)) + eps of the solver's AdamW state, which the question itself does not change."""


def bergson(question: Candidate) -> float:
    """The attribution library bergson's score with Adam's moments: cos(g / r, g_dev / r), r AdamW's frozen root."""
    return cosine_of(question.gradient_N / question.root_N, question.dev_N / question.root_N)


def gradalign(question: Candidate) -> float:
    """GradAlign's score with its optimizer option (arXiv 2602.21492): cos(g, g_dev / r), r AdamW's frozen root."""
    return cosine_of(question.gradient_N, question.dev_N / question.root_N)


def dot(question: Candidate) -> float:
    """Inner product of the plain gradient and the dev gradient: long and surprising answers weigh more."""
    return question.stored.raw_cosine * question.stored.gradient_norm * question.stored.reference_norm


def label_oracle(question: Candidate) -> float | None:
    """1 for a right key on a topic of the dev set, -1 for a wrong one, 0 elsewhere; None where labels are missing."""
    if question.on_target is None or question.right_key is None:
        return None
    return question.on_target * (1.0 if question.right_key else -1.0)


def cosine_of(left_N: np.ndarray, right_N: np.ndarray) -> float:
    """Cosine of two vectors; 0 where one has no length."""
    return cosine(float(left_N @ right_N), float(np.linalg.norm(left_N)), float(np.linalg.norm(right_N)))


SCORES: Mapping[str, Callable[[Candidate], float | None]] = {
    "bergson": bergson,
    # Hard questions first: the share of wrong answers.
    "difficulty": lambda question: 1 - question.stored.solver_accuracy,
    "dot": dot,
    "gradalign": gradalign,
    "label_oracle": label_oracle,
    # The variance of right and wrong answers, p (1 - p): pass rates near one half first.
    "pass_rate": lambda question: question.stored.solver_accuracy * (1 - question.stored.solver_accuracy),
    PAPER: lambda question: question.stored.cosine,
    "raw_cosine": lambda question: question.stored.raw_cosine,
    # Questions with short answers first.
    "short": lambda question: -question.tokens,
}
"""Values of a question, higher is better; None where a score can say nothing of it."""
