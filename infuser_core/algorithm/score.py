"""Influence scores of questions, from the sums over all parameters (eq:estimated_influence_score). Needs no torch."""

import math

NORM_FLOOR = 1e-12
"""Norms below this count as this: a zero gradient scores 0 and not NaN."""

MODES = ("preconditioned_cosine", "cosine", "preconditioned_dot", "dot")
"""Scores by configuration name; the first is the paper's (eq:estimated_influence_score)."""


def norm(squares: float) -> float:
    """Euclidean norm from an accumulated sum of squares."""
    return math.sqrt(squares)


def score(
    mode: str,
    *,
    dot: float,
    raw_dot: float,
    direction_norm: float,
    gradient_norm: float,
    reference_norm: float,
) -> float:
    """The named influence score of one question from its five scalars. Raises ValueError for an unknown mode."""
    if mode == "preconditioned_cosine":
        return cosine(dot, direction_norm, reference_norm)
    if mode == "cosine":
        return cosine(raw_dot, gradient_norm, reference_norm)
    if mode == "preconditioned_dot":
        return dot
    if mode == "dot":
        return raw_dot
    raise ValueError(f"unknown influence mode {mode!r}; choose one of {', '.join(MODES)}")


def cosine(dot: float, left_norm: float, right_norm: float) -> float:
    """dot / (|left| |right|) with floored norms."""
    return dot / (max(left_norm, NORM_FLOOR) * max(right_norm, NORM_FLOOR))


def newest_share(decay: float, count: int) -> float:
    """Weight of the last of `count` values in their mean with exponential decay: (1 - d) / (1 - d^count).

    mean_t = share_t * value_t + (1 - share_t) * mean_(t-1) is Adam's first moment, bias corrected (arXiv 1412.6980,
    algorithm 1).
    """
    return (1.0 - decay) / (1.0 - decay**count)
