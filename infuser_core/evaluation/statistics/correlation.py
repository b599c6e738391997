"""Correlations with intervals: rank correlation by bootstrap, accuracy against response length.

Suffixes of array names: _B resamples, _N questions, _L different values.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

RESAMPLES = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class RankCorrelation:
    """Spearman's rank correlation of one predictor with one measured change."""

    predictor: str
    target: str
    """Measured quantity."""
    spearman: float
    """Spearman's rho; 0 if one side does not vary."""
    low: float
    """2.5% quantile over bootstrap resamples of the questions."""
    high: float
    """97.5% quantile."""
    count: int
    """Number of questions."""


def spearman(first: np.ndarray, second: np.ndarray, draws_BN: np.ndarray) -> np.ndarray:
    """Spearman's rho [B] with average ranks for ties, of the pairs that each row of `draws_BN` picks."""
    return _pearson(_ranks(first, draws_BN), _ranks(second, draws_BN))


def _ranks(values: np.ndarray, draws_BN: np.ndarray) -> np.ndarray:
    """Ranks of the drawn values within their row [B, N]; equal values share the mean of their places."""
    levels, level_of = np.unique(values, return_inverse=True)
    levels_BN = level_of[draws_BN]
    batch, size = len(levels_BN), levels.size
    flat = (levels_BN + size * np.arange(batch)[:, None]).ravel()
    counts_BL = np.bincount(flat, minlength=batch * size).reshape(batch, size)
    return np.take_along_axis(counts_BL.cumsum(axis=1) - (counts_BL - 1) / 2, levels_BN, axis=1)


def _pearson(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Pearson's correlation along the last axis; 0 if one side does not vary."""
    if first.shape[-1] < 2:
        return np.zeros(first.shape[:-1])
    left, right = (side - side.mean(axis=-1, keepdims=True) for side in (first, second))
    scale = np.sqrt(np.vecdot(left, left) * np.vecdot(right, right))
    return np.divide(np.vecdot(left, right), scale, out=np.zeros_like(scale), where=scale > 0)


def rank_correlations(
    predictors: Mapping[str, Sequence[float]], targets: Mapping[str, Sequence[float]], *, seed: int = 0
) -> list[RankCorrelation]:
    """Rank correlation of every predictor with every target, on the same bootstrap resamples of the questions."""
    count = len(next(iter(targets.values())))
    size = (RESAMPLES if count else 0, count)
    draws_BN = np.random.default_rng(seed).integers(0, max(count, 1), size=size)
    return [
        _correlation(predictor, np.asarray(values, float), target, np.asarray(measured, float), draws_BN)
        for target, measured in targets.items()
        for predictor, values in predictors.items()
    ]


def _correlation(
    predictor: str, values: np.ndarray, target: str, measured: np.ndarray, draws_BN: np.ndarray
) -> RankCorrelation:
    resampled = np.sort(spearman(values, measured, draws_BN)).tolist()
    return RankCorrelation(
        predictor=predictor,
        target=target,
        spearman=float(spearman(values, measured, np.arange(values.size)[None])[0]),
        low=resampled[int(0.025 * len(resampled))] if resampled else -1.0,
        high=resampled[int(0.975 * len(resampled))] if resampled else 1.0,
        count=values.size,
    )


def fit_lengths(lengths: Sequence[float], accuracies: Sequence[float]) -> dict[str, Any]:
    """Fit accuracy to ln(length) by least squares, one point per run or benchmark (paper: length and accuracy).

    `intercept` and `slope`, Pearson's correlation with a 95% interval, and the `points` of the fit; `reason` says why
    there is no line or no interval.

    There is at least one point, and lengths are above 0. The rule for degenerate input: without two different lengths
    the line is flat at the mean accuracy; if length or accuracy does not vary there is no correlation; below four
    points the interval is [-1, 1] and with perfect correlation the point itself, as Fisher's z gives none.
    """
    logs, values = np.log(np.array(lengths, dtype=np.float64)), np.array(accuracies, dtype=np.float64)
    lengths_vary, accuracies_vary = float(np.ptp(logs)) > 0, float(np.ptp(values)) > 0
    slope, correlation, low, high, reason = 0.0, None, -1.0, 1.0, "all lengths are equal"
    if lengths_vary:
        spread = logs - logs.mean()
        slope, reason = float(spread @ values / (spread @ spread)), "accuracy does not vary"
    if lengths_vary and accuracies_vary:
        correlation = min(1.0, max(-1.0, float(_pearson(logs, values))))
        reason = f"{len(logs)} points are too few for an interval"
        if abs(correlation) >= 1 - 1e-15:
            low, high, reason = correlation, correlation, "the points lie on a line"
        elif len(logs) >= 4:
            middle, half = math.atanh(correlation), NormalDist().inv_cdf(0.975) / math.sqrt(len(logs) - 3)
            low, high, reason = math.tanh(middle - half), math.tanh(middle + half), ""
    return {
        "intercept": float(values.mean()) - slope * float(logs.mean()),
        "slope": slope,
        "pearson": correlation,
        "low": low,
        "high": high,
        "points": len(logs),
        "reason": reason,
    }
