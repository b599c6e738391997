"""Means and deviations over seeds, averages of categories, and rounding for print."""

import statistics
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t as student

from infuser_core.errors import UsageError
from infuser_core.statistics.averages import (
    format_decimal,
    half_up,
    over_seeds,
    relative,
    t_quantile,
)

percentages = st.decimals(0, 100, places=4).map(float)


@given(st.lists(percentages, min_size=2, max_size=8))
def test_the_deviation_is_the_sample_one_and_the_interval_students(values: list[float]):
    spread = over_seeds(values)
    assert float(spread.mean) == pytest.approx(statistics.fmean(values), abs=1e-9)
    assert spread.sd == pytest.approx(statistics.stdev(values), abs=1e-9)
    half = student.ppf(0.975, len(values) - 1) * statistics.stdev(values) / len(values) ** 0.5
    assert (spread.low, spread.high) == pytest.approx((float(spread.mean) - half, float(spread.mean) + half), abs=1e-9)


def test_three_seeds_have_the_tabulated_t():
    assert t_quantile(2) == pytest.approx(4.303, abs=5e-4)
    spread = over_seeds([33.31, 28.26, 32.89])
    assert format_decimal(spread.mean) == "31.49" and format_decimal(spread.sd or 0) == "2.80"
    assert statistics.pstdev([33.31, 28.26, 32.89]) == pytest.approx(2.28, abs=0.01)


def test_one_seed_has_no_deviation_and_none_is_refused():
    spread = over_seeds([5.0])
    assert (spread.mean, spread.sd, spread.low, spread.seeds) == (5, None, None, 1)
    with pytest.raises(UsageError, match="no seeds"):
        over_seeds([])


def test_relative_improvement_is_in_percent():
    assert format_decimal(relative(Decimal("40.62"), Decimal("34.43"))) == "17.98"


@given(st.decimals(-1000, 1000, places=6), st.integers(0, 4))
def test_rounding_is_decimals_half_up(value: Decimal, digits: int):
    expected = value.quantize(Decimal(1).scaleb(-digits), rounding=ROUND_HALF_UP)
    assert half_up(value, digits) == expected
    assert half_up(Fraction(value), digits) == expected


def test_a_float_means_what_it_prints():
    assert half_up(2.675) == Decimal("2.68")
    assert half_up(Fraction(1, 3), 4) == Decimal("0.3333")
    assert format_decimal(0.5, 0) == "1"
