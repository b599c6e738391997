"""pass@k: the probability that at least one of k responses is right, estimated without bias from n >= k of them.

Suffixes of array names: _Q questions, _K values of k.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from infuser_core.evaluation.statistics.bootstrap import DRAWS, resampled_means
from infuser_core.evaluation.statistics.tally import Tally


@dataclass(frozen=True, slots=True, kw_only=True)
class PassPoint:
    """One point of a pass@k curve."""

    k: int
    """Responses that may be tried."""
    value: float
    """Mean over questions of the unbiased estimate."""
    low: float
    """2.5% quantile over resampled questions; nan if no interval is requested."""
    high: float
    """97.5% quantile."""
    questions: int


def pass_values(tally: Tally, ks: Sequence[int]) -> np.ndarray:
    """1 - C(n-c, k) / C(n, k) for every question and every k, (Q, K), from one small table per number of samples n.

    Every question has at least as many samples as the largest k.
    """
    assert min(ks) >= 1 and max(ks) <= tally.samples_Q.min(), (ks, tally.samples_Q.min())
    values_QK = np.zeros((len(tally.question_ids), len(ks)))
    for samples in np.unique(tally.samples_Q):
        rows = tally.samples_Q == samples
        values_QK[rows] = _pass_table(ks, int(samples)).T[tally.correct_Q[rows]]
    return values_QK


def pass_curve(tally: Tally, ks: Sequence[int], *, intervals: bool = False, draws: int = DRAWS) -> list[PassPoint]:
    """pass@k for several k; `intervals` adds 95% intervals over resampled questions, the same resamples for all k."""
    values_QK = pass_values(tally, ks)
    bounds = np.full((2, len(ks)), np.nan)
    if intervals:
        bounds = np.quantile(resampled_means(values_QK, draws=draws), [0.025, 0.975], axis=0)
    return [
        PassPoint(
            k=k,
            value=float(values_QK[:, at].mean()),
            low=float(bounds[0, at]),
            high=float(bounds[1, at]),
            questions=len(tally.question_ids),
        )
        for at, k in enumerate(ks)
    ]


def powers_of_two(samples: int) -> list[int]:
    """1, 2, 4, ... up to the number of samples: the usual points of a curve."""
    return [2**power for power in range(max(1, samples).bit_length())]


def _pass_table(ks: Sequence[int], samples: int) -> np.ndarray:
    """pass@k for 0 .. n correct responses, (K, n+1); each factor 1 - k/i enters once, from i = n downwards."""
    last = np.arange(samples, 0, -1, dtype=np.float64)
    factors = np.maximum(last - np.asarray(ks, dtype=np.float64)[:, None], 0.0) / last
    failing = np.cumprod(factors, axis=1)
    return 1.0 - np.concatenate([np.ones((len(ks), 1)), failing], axis=1)
