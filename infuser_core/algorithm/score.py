"""Rewards of the solver's responses, and influence scores of questions from the sums over all parameters. No torch."""

import math
from collections.abc import Collection
from typing import Literal

from infuser_core.schemas import Verdict

Influence = Literal["preconditioned_cosine", "cosine", "preconditioned_dot", "dot"]
"""Scores by configuration name; the first is the paper's (eq:estimated_influence_score)."""
NORM_FLOOR = 1e-12
"""Least norm in a division: a zero gradient scores 0 and not NaN."""


def solver_reward(verdict: str) -> float:
    """1 for a correct response, else 0."""
    return 1.0 if verdict == Verdict.CORRECT else 0.0


def mid_eos_shaped(
    reward: float, verdict: str, finish_reason: str, *, penalty: float, verdicts: Collection[str]
) -> float:
    """The reward of a response, plus `penalty` (hybrid runs: -0.5) if it ended by itself without an answer.

    `verdicts` are those that count as no answer. For the solver's update alone: dev gradient and influence use the
    plain reward.
    """
    return reward + penalty if verdict in verdicts and finish_reason == "stop" else reward


def norm(squares: float) -> float:
    """Euclidean norm from an accumulated sum of squares."""
    return math.sqrt(squares)


def score(
    mode: Influence,
    *,
    dot: float,
    raw_dot: float,
    direction_norm: float,
    gradient_norm: float,
    reference_norm: float,
) -> float:
    """The named influence score of one question from its five scalars."""
    if mode == "preconditioned_cosine":
        return cosine(dot, direction_norm, reference_norm)
    if mode == "cosine":
        return cosine(raw_dot, gradient_norm, reference_norm)
    return dot if mode == "preconditioned_dot" else raw_dot


def cosine(dot: float, left_norm: float, right_norm: float) -> float:
    """dot / (|left| |right|) with floored norms."""
    return dot / (max(left_norm, NORM_FLOOR) * max(right_norm, NORM_FLOOR))
