"""Rank correlation with bootstrap intervals: how well predictors order what was measured."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata

RESAMPLES = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class RankCorrelation:
    """Spearman's rank correlation of one predictor with one measured change."""

    predictor: str
    """Name of the predictor."""
    target: str
    """What was measured."""
    spearman: float
    """Spearman's rho; 0 where one side does not vary."""
    low: float
    """2.5% quantile over bootstrap resamples of the questions."""
    high: float
    """97.5% quantile."""
    count: int
    """Questions."""


def spearman(first: Sequence[float], second: Sequence[float]) -> float:
    """Spearman's rho with average ranks for ties."""
    return _pearson(rankdata(first), rankdata(second))


def pearson(first: Sequence[float], second: Sequence[float]) -> float:
    """Pearson's correlation; 0 where one side does not vary."""
    return _pearson(np.asarray(first, float), np.asarray(second, float))


def _pearson(first: np.ndarray, second: np.ndarray) -> float:
    if first.size < 2:
        return 0.0
    left, right = first - first.mean(), second - second.mean()
    scale = float(np.sqrt((left @ left) * (right @ right)))
    return float(left @ right) / scale if scale > 0 else 0.0


def rank_correlations(
    predictors: Mapping[str, Sequence[float]], targets: Mapping[str, Sequence[float]], *, seed: int = 0
) -> list[RankCorrelation]:
    """Every predictor against every target, all on the same bootstrap resamples of the questions."""
    count = len(next(iter(targets.values())))
    draws = np.random.default_rng(seed).integers(0, count, size=(RESAMPLES, count)) if count else np.zeros((0, 0), int)
    return [
        _correlation(predictor, np.asarray(values, float), target, np.asarray(measured, float), draws)
        for target, measured in targets.items()
        for predictor, values in predictors.items()
    ]


def _correlation(
    predictor: str, values: np.ndarray, target: str, measured: np.ndarray, draws: np.ndarray
) -> RankCorrelation:
    resampled = sorted(spearman(list(values[draw]), list(measured[draw])) for draw in draws)
    return RankCorrelation(
        predictor=predictor,
        target=target,
        spearman=spearman(list(values), list(measured)),
        low=resampled[int(0.025 * len(resampled))] if resampled else -1.0,
        high=resampled[int(0.975 * len(resampled))] if resampled else 1.0,
        count=values.size,
    )
