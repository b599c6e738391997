"""Rank correlations agree with scipy's, and their intervals contain them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

from infuser_core.statistics.correlation import pearson, rank_correlations, spearman

values = st.lists(st.integers(-20, 20), min_size=3, max_size=30)


@given(values, st.randoms())
def test_spearman_is_scipys(first: list[int], random: object) -> None:
    second = list(first)
    random.shuffle(second)  # type: ignore[attr-defined]
    if len(set(first)) < 2:
        assert spearman(first, second) == 0.0
    else:
        assert spearman(first, second) == pytest.approx(spearmanr(first, second).statistic, abs=1e-12)


def test_a_perfect_predictor_and_its_opposite() -> None:
    target = [float(n * n) for n in range(12)]
    rows = rank_correlations({"same": target, "opposite": [-v for v in target], "flat": [1.0] * 12}, {"dev": target})
    assert [row.spearman for row in rows] == pytest.approx([1.0, -1.0, 0.0])
    assert all(row.low <= row.spearman <= row.high for row in rows)
    assert pearson([1, 2, 3], [2, 4, 6]) == pytest.approx(1.0)
