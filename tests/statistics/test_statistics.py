"""Averages over seeds, tallies, pass@k, correlations."""

import math
import statistics
from dataclasses import replace
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction
from itertools import combinations, pairwise
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import linregress, pearsonr, spearmanr
from scipy.stats import t as student

from infuser_core.errors import UsageError
from infuser_core.evaluation.statistics.averages import (
    format_decimal,
    over_runs,
    over_seeds,
    t_quantile,
)
from infuser_core.evaluation.statistics.correlation import fit_lengths, rank_correlations, spearman
from infuser_core.evaluation.statistics.passk import pass_curve, pass_values, powers_of_two
from infuser_core.evaluation.statistics.tally import (
    accuracy,
    common_questions,
    from_counts,
    from_scores,
    mean_shares,
    shares,
)
from infuser_core.schemas import QuestionScore

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


# Counts per question: what an evaluation saved, common questions of two solvers, and what is refused by name


def test_accuracy_is_the_mean_over_questions_of_the_mean_over_samples():
    tally = from_counts({"a": 4, "b": 1, "c": 0}, {"a": 4, "b": 2, "c": 8})
    assert list(shares(tally)) == [1.0, 0.5, 0.0] and accuracy(tally) == 0.5
    assert np.isnan(accuracy(from_counts({}, 1)))


def test_impossible_counts_are_refused():
    with pytest.raises(UsageError, match="question b: 3 correct of 2"):
        from_counts({"a": 1, "b": 3}, 2)
    with pytest.raises(UsageError, match="of 0 responses"):
        from_counts({"a": 0}, 0)


def test_questions_that_were_left_out_are_not_in_the_denominator():
    row = QuestionScore(
        benchmark="exam",
        question_id="a",
        domain="",
        num_samples=4,
        num_correct=1,
        num_no_answer=1,
        num_unverified=0,
        num_cut=0,
        too_long=False,
        mean_response_tokens=3.0,
    )
    dropped = replace(row, question_id="b", num_samples=0, num_correct=0, num_no_answer=0, too_long=True)
    asked = replace(row, question_id="c", num_correct=0, num_no_answer=4, too_long=True)
    tally = from_scores([row, dropped, asked])
    assert tally.question_ids == ("a", "c") and accuracy(tally) == 0.125


def test_common_questions_stand_in_the_first_order():
    both = [from_counts({"a": 1, "b": 0, "c": 1}, 1), from_counts({"c": 0, "d": 1, "a": 1}, 1)]
    ids, left_out = common_questions(both)
    assert ids == ["a", "c"] and left_out == 2
    assert list(mean_shares(both, ids)) == [1, 0.5] and list(mean_shares(both[1:], ids)) == [1, 0]


# pass@k is the share of subsets of k responses that hold a correct one


def by_subsets(samples: int, correct: int, k: int) -> float:
    """The definition: every subset of k responses, the first `correct` of which are right."""
    chosen = list(combinations(range(samples), k))
    return sum(any(one < correct for one in subset) for subset in chosen) / len(chosen)


def pass_at_k(samples: int, correct: int, k: int) -> float:
    """The estimate of one question."""
    return float(pass_values(from_counts({"q": correct}, samples), [k])[0, 0])


@st.composite
def designs(draw: st.DrawFn, most: int = 9) -> tuple[int, int, int]:
    samples = draw(st.integers(1, most))
    return samples, draw(st.integers(0, samples)), draw(st.integers(1, samples))


@given(designs())
def test_the_product_form_is_the_share_of_subsets(design: tuple[int, int, int]):
    assert pass_at_k(*design) == pytest.approx(by_subsets(*design), abs=1e-12)


@given(designs(most=400))
def test_the_product_form_is_the_binomial_one(design: tuple[int, int, int]):
    samples, correct, k = design
    assert pass_at_k(*design) == pytest.approx(1 - comb(samples - correct, k) / comb(samples, k), abs=1e-12)


@given(st.lists(designs(most=12), min_size=1, max_size=40), st.data())
def test_the_table_path_equals_one_question_at_a_time(questions: list[tuple[int, int, int]], data: st.DataObject):
    samples = {f"q{n}": design[0] for n, design in enumerate(questions)}
    correct = {f"q{n}": design[1] for n, design in enumerate(questions)}
    ks = data.draw(st.lists(st.integers(1, min(samples.values())), min_size=1, max_size=4))
    values = pass_values(from_counts(correct, samples), ks)
    expected = [[pass_at_k(samples[name], correct[name], k) for k in ks] for name in samples]
    np.testing.assert_allclose(values, expected, atol=1e-12)


def test_a_curve_rises_and_its_intervals_hold_it():
    tally = from_counts({f"q{n}": n % 5 for n in range(40)}, 128)
    curve = pass_curve(tally, powers_of_two(128), intervals=True, draws=500)
    assert [point.k for point in curve] == [1, 2, 4, 8, 16, 32, 64, 128]
    assert all(left.value < right.value for left, right in pairwise(curve))
    assert all(point.low < point.value < point.high and point.questions == 40 for point in curve)
    plain = pass_curve(tally, [1])[0]
    assert plain.value == curve[0].value and np.isnan(plain.low)


# Rank correlations and the line of accuracy over the logarithm of length agree with scipy's


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
