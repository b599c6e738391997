"""Intervals of accuracies: Wilson, question-clustered bootstrap, paired differences, detectable effects, dev leakage.

Questions are resampled, each with all its samples; differences are paired. The mean over resampled questions depends on
how often each question is drawn, and questions with equal values are interchangeable. So if few distinct values occur,
the counts of the values are drawn instead of the questions: the same distribution, thousands of times less work.
Suffixes of array names: _Q questions, _V columns (solvers, points), _D draws.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from infuser_core.errors import UsageError
from infuser_core.evaluation.statistics.tally import Tally, common_questions, mean_shares

Z = 1.959964
"""97.5% quantile of the normal distribution."""
DRAWS = 10_000
CELLS = 1 << 22
"""Counts in memory at a time: 32 MiB."""
LUMPED = 5
"""Number of uniform variates that take as long to draw as one binomial variate."""


def wilson(accuracy: float, count: int) -> tuple[float, float]:
    """Ends of the Wilson score interval of a share over `count` questions, the unit that was sampled.

    With several samples per question `count` stays the number of questions, which is conservative.
    """
    if count == 0:
        return 0.0, 1.0
    spread = Z * math.sqrt(accuracy * (1 - accuracy) / count + Z * Z / (4 * count * count))
    centre, scale = accuracy + Z * Z / (2 * count), 1 + Z * Z / count
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)


@dataclass(frozen=True, slots=True, kw_only=True)
class BootstrapMean:
    """A mean over questions with its 95% bootstrap interval."""

    value: float
    low: float
    """2.5% quantile over resampled questions."""
    high: float
    """97.5% quantile."""
    questions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Difference of two solvers, second minus first, on the same questions."""

    value: float
    """Mean over common questions of the difference of the shares of correct responses."""
    low: float
    """2.5% quantile over resampled questions."""
    high: float
    """97.5% quantile."""
    share: float
    """Twice the smaller share of draws on one side of zero, with zero on both sides: small if the sign is clear."""
    questions: int
    """Common questions."""
    left_out: int
    """Questions that only one of the two answered."""


def resampled_means(values_QV: np.ndarray, *, draws: int = DRAWS, seed: int = 0, cells: int = CELLS) -> np.ndarray:
    """Column means over resampled rows, (D, V), the same rows for all columns; about `cells` counts are in memory.

    Raises UsageError without rows.
    """
    table = values_QV[:, None] if values_QV.ndim == 1 else values_QV
    count = len(table)
    if count == 0:
        raise UsageError("nothing to resample: no questions", hint="name a run or a file that holds scored responses")
    patterns, sizes = np.unique(table, axis=0, return_counts=True)
    rng = np.random.default_rng(seed)
    few = len(patterns) * LUMPED < count or len(patterns) == 1
    distinct = patterns if few else table
    means = np.empty((draws, table.shape[1]))
    step = max(1, cells // len(distinct))
    for start in range(0, draws, step):
        rows = min(draws, start + step) - start
        if few:
            counts = rng.multinomial(count, sizes / count, size=rows)
        else:
            places = rng.integers(0, count, size=(rows, count), dtype=np.int32 if rows * count < 2**31 else np.int64)
            places += (np.arange(rows, dtype=places.dtype) * count)[:, None]
            counts = np.bincount(places.ravel(), minlength=rows * count).reshape(rows, count)
        means[start : start + rows] = counts @ distinct / count
    return means


def estimate(values_Q: np.ndarray, *, draws: int = DRAWS, seed: int = 0) -> BootstrapMean:
    """Mean over questions with its 95% percentile interval, which has no width if all questions have one value."""
    low, high = np.quantile(resampled_means(values_Q, draws=draws, seed=seed)[:, 0], [0.025, 0.975])
    return BootstrapMean(value=float(values_Q.mean()), low=float(low), high=float(high), questions=len(values_Q))


def difference(first: Tally, second: Tally, *, draws: int = DRAWS, seed: int = 0) -> Difference:
    """Accuracy of the second solver minus the first one's, paired by the questions that they share.

    Raises UsageError when they share no question.
    """
    ids, left_out = common_questions([first, second])
    if not ids:
        raise UsageError(
            f"{len(first.question_ids)} and {len(second.question_ids)} questions, none in common",
            hint="compare results on the same benchmark",
        )
    values = [mean_shares([side], ids) for side in (first, second)]
    return paired_difference(*values, draws=draws, seed=seed, left_out=left_out)


def paired_difference(
    first_Q: np.ndarray, second_Q: np.ndarray, *, draws: int = DRAWS, seed: int = 0, left_out: int = 0
) -> Difference:
    """Mean of second - first over questions, with its interval; both arrays have the same order of questions."""
    assert first_Q.shape == second_Q.shape, (first_Q.shape, second_Q.shape)
    gains_Q = second_Q - first_Q
    means_D = resampled_means(gains_Q, draws=draws, seed=seed)[:, 0]
    low, high = np.quantile(means_D, [0.025, 0.975])
    return Difference(
        value=float(gains_Q.mean()),
        low=float(low),
        high=float(high),
        share=sign_share(means_D),
        questions=len(gains_Q),
        left_out=left_out,
    )


def sign_share(means_D: np.ndarray) -> float:
    """Twice the smaller share of draws at or beyond zero, one draw added so that it is never 0; at most 1."""
    # Sums of shares such as 1/3 have a rounding error, so a difference of zero may not be exactly 0.
    below, above = int((means_D <= 1e-12).sum()), int((means_D >= -1e-12).sum())
    return min(1.0, 2 * (min(below, above) + 1) / (len(means_D) + 1))


def detectable(gains_Q: np.ndarray) -> float | None:
    """Smallest true difference that a two-sided test at 5% finds with 80% power in these paired differences, (Q,).

    None with one question, or if nothing varies, so that the noise is unknown.
    """
    # Imported here: reading saved results needs no scipy.
    from scipy.special import ndtri

    if len(gains_Q) < 2 or float(np.ptp(gains_Q)) == 0.0:
        return None
    return float(ndtri(0.975) + ndtri(0.8)) * float(gains_Q.std(ddof=1)) / math.sqrt(len(gains_Q))


def leakage(base: Tally, trained: Tally, dev_ids: Collection[str], *, draws: int = DRAWS) -> dict[str, Any]:
    """Gain on dev members against gain on their complement (paper: dev-set leakage), with intervals over questions.

    `dev`, `rest` and `full` have the accuracies of both models and the paired `delta`: acc_full N = n_dev acc_dev +
    n_rest acc_rest for either. `gap` is delta on dev members minus delta on the rest, the gain that does not carry
    over; the two sides are resampled independently.

    Raises UsageError when either side has no question.
    """
    ids, left_out = common_questions([base, trained])
    inside = frozenset(dev_ids)
    parts = [[name for name in ids if (name in inside) is side] for side in (True, False)]
    sizes = [len(part) for part in parts]
    if 0 in sizes:
        raise UsageError(
            f"{sizes[0]} dev questions and {sizes[1]} others: nothing to compare",
            hint="give the ids of dev questions as this benchmark writes them",
        )
    sides = [(mean_shares([base], part), mean_shares([trained], part)) for part in parts]
    # Independent streams: with equal ones the resamples of the two sides would be correlated.
    streams = [int(child.generate_state(1)[0]) for child in np.random.SeedSequence(0).spawn(2)]
    gains_D = [
        resampled_means(second - first, draws=draws, seed=stream)[:, 0]
        for (first, second), stream in zip(sides, streams, strict=True)
    ]
    dev, rest = (_split(first, second, split_D) for (first, second), split_D in zip(sides, gains_D, strict=True))
    whole = (gains_D[0] * sizes[0] + gains_D[1] * sizes[1]) / sum(sizes)
    gaps = gains_D[0] - gains_D[1]
    low, high = np.quantile(gaps, [0.025, 0.975])
    return {
        "dev": dev,
        "rest": rest,
        "full": _split(mean_shares([base], ids), mean_shares([trained], ids), whole),
        "gap": dev["delta"] - rest["delta"],
        "gap_low": float(low),
        "gap_high": float(high),
        "share": sign_share(gaps),
        "left_out": left_out,
    }


def _split(base_Q: np.ndarray, trained_Q: np.ndarray, gains_D: np.ndarray) -> dict[str, Any]:
    """One side of the split: accuracies of both models, and the `delta` with its 95% interval over questions."""
    low, high = np.quantile(gains_D, [0.025, 0.975])
    return {
        "questions": len(base_Q),
        "base": float(base_Q.mean()),
        "trained": float(trained_Q.mean()),
        "delta": float((trained_Q - base_Q).mean()),
        "low": float(low),
        "high": float(high),
    }
