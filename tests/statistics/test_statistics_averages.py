"""Means and deviations over seeds and runs, and rounding for print."""

import statistics
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t as student

from infuser_core.errors import UsageError
from infuser_core.evaluation.statistics.averages import (
    format_decimal,
    over_runs,
    over_seeds,
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


@given(st.decimals(-1000, 1000, places=6), st.integers(0, 4))
def test_rounding_is_decimals_half_up(value: Decimal, digits: int):
    expected = value.quantize(Decimal(1).scaleb(-digits), rounding=ROUND_HALF_UP)
    assert Decimal(format_decimal(value, digits)) == expected
    assert Decimal(format_decimal(Fraction(value), digits)) == expected


def test_a_float_means_what_it_prints():
    assert format_decimal(2.675) == "2.68"
    assert format_decimal(Fraction(1, 3), 4) == "0.3333"
    assert format_decimal(0.5, 0) == "1"


def rows(**values: float) -> list[dict[str, object]]:
    return [{"predictor": name, "target": "held_out", "spearman": value} for name, value in values.items()]


def test_differences_are_paired_by_run_and_variants_stay_apart() -> None:
    first, other = [0.9, 0.7, 0.8], [0.6, 0.5, 0.7]
    tables = [("lab", rows(own=a, other=b)) for a, b in zip(first, other, strict=True)]
    found = over_runs([*tables, ("far", rows(own=0.1, other=0.2))], name="predictor", value="spearman", first="own")
    own, second, *far = found
    gaps = [a - b for a, b in zip(first, other, strict=True)]
    half = student.ppf(0.975, 2) * statistics.stdev(gaps) / 3**0.5
    assert (own["mean"], own["behind"], own["lower_in"]) == (0.8, 0, 0)
    assert (second["behind_low"], second["behind_high"]) == pytest.approx((0.2 - half, 0.2 + half), abs=1e-4)
    assert (second["lower_in"], second["runs"], second["measure"]) == (3, 3, "held_out")
    assert [(row["variant"], row["runs"], row["low"], row["lower_in"]) for row in far] == [("far", 1, None, 0)] * 2


def test_a_score_that_one_run_lacks_is_left_out() -> None:
    tables = [("lab", rows(own=0.9, oracle=0.5)), ("lab", rows(own=0.8))]
    assert [row["name"] for row in over_runs(tables, name="predictor", value="spearman", first="own")] == ["own"]
