"""Rewards of the solver's responses, and influence scores of questions from sums over all parameters.

The module does not import torch.
"""

import math
from collections.abc import Collection
from typing import Literal

from infuser_core.schemas import Verdict

Influence = Literal["preconditioned_cosine", "cosine", "preconditioned_dot", "dot"]
"""Scores from gradients, by configuration name; the first is the paper's (eq:estimated_influence_score)."""
Score = Literal[Influence, "measured"]
"""All scores by configuration name: also the change of the dev objective after real steps on the question."""
NORM_FLOOR = 1e-12
"""Smallest norm used as a divisor, so that a zero gradient scores 0 and not NaN."""


def solver_reward(verdict: str) -> float:
    """Reward of a solver's response: 1 if it is correct, else 0."""
    return 1.0 if verdict == Verdict.CORRECT else 0.0


def mid_eos_shaped(
    reward: float, verdict: str, finish_reason: str, *, penalty: float, verdicts: Collection[str]
) -> float:
    """Reward of a response, with `penalty` added (hybrid runs: -0.5) if it ended by itself without an answer.

    `verdicts` lists the verdicts that count as no answer. Only the solver's update uses this: dev gradient and
    influence scores use the plain reward.
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
    """Influence score of one question by the formula `mode`, from its five scalars."""
    if mode == "preconditioned_cosine":
        return cosine(dot, direction_norm, reference_norm)
    if mode == "cosine":
        return cosine(raw_dot, gradient_norm, reference_norm)
    return dot if mode == "preconditioned_dot" else raw_dot


def cosine(dot: float, left_norm: float, right_norm: float) -> float:
    """Cosine dot / (|left| |right|), with norms of at least NORM_FLOOR."""
    return dot / (max(left_norm, NORM_FLOOR) * max(right_norm, NORM_FLOOR))
