"""Rank correlations and the line of accuracy over the logarithm of length agree with scipy's."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import linregress, pearsonr, spearmanr

from infuser_core.evaluation.statistics.correlation import fit_lengths, rank_correlations, spearman

values = st.lists(st.integers(-20, 20), min_size=3, max_size=30)


@given(values, st.integers(0, 2**32))
def test_spearman_of_every_draw_is_scipys(first: list[int], seed: int):
    random = np.random.default_rng(seed)
    left, right = np.asarray(first, float), random.permutation(first).astype(float)
    draws_BN = np.vstack([np.arange(left.size), random.integers(0, left.size, size=(5, left.size))])
    for draw, found in zip(draws_BN, spearman(left, right, draws_BN), strict=True):
        if len({*left[draw]}) < 2 or len({*right[draw]}) < 2:
            assert found == 0.0
        else:
            assert found == pytest.approx(spearmanr(left[draw], right[draw]).statistic, abs=1e-12)


def test_a_perfect_predictor_and_its_opposite():
    target = [float(n * n) for n in range(12)]
    rows = rank_correlations({"same": target, "opposite": [-v for v in target], "flat": [1.0] * 12}, {"dev": target})
    assert [row.spearman for row in rows] == pytest.approx([1.0, -1.0, 0.0])
    assert all(row.low <= row.spearman <= row.high for row in rows)


points = st.lists(
    st.tuples(st.integers(1, 20_000), st.integers(0, 1000).map(lambda n: n / 1000)), min_size=4, max_size=20
)


@given(points)
def test_the_line_and_its_correlation_are_scipys(pairs: list[tuple[int, float]]):
    lengths, values = [float(length) for length, _ in pairs], [value for _, value in pairs]
    found = fit_lengths(lengths, values)
    if len(set(lengths)) < 2:
        assert (found["slope"], found["pearson"], found["reason"]) == (0.0, None, "all lengths are equal")
        assert found["intercept"] == pytest.approx(np.mean(values))
        return
    line = linregress(np.log(lengths), values)
    assert (found["intercept"], found["slope"]) == pytest.approx((line.intercept, line.slope), rel=1e-7, abs=1e-7)
    if len(set(values)) < 2:
        assert found["pearson"] is None and (found["low"], found["high"]) == (-1, 1)
        return
    expected = pearsonr(np.log(lengths), values)
    assert found["pearson"] == pytest.approx(expected.statistic, abs=1e-9)
    if abs(expected.statistic) < 0.999:
        ends = expected.confidence_interval(0.95)
        assert (found["low"], found["high"]) == pytest.approx((ends.low, ends.high), abs=1e-6)


def test_degenerate_points_say_why_there_is_no_interval():
    few = fit_lengths([100, 200, 400], [0.1, 0.2, 0.25])
    assert few["pearson"] is not None and (few["low"], few["high"]) == (-1, 1)
    assert few["reason"] == "3 points are too few for an interval"
    straight = fit_lengths([1.0, math.e, math.e**2, math.e**3], [0.0, 1.0, 2.0, 3.0])
    assert (straight["slope"], straight["intercept"]) == pytest.approx((1, 0), abs=1e-12)
    assert straight["pearson"] == pytest.approx(1) and straight["low"] >= 1 - 1e-9
