"""Length statistics by verdict, and the line of accuracy over the logarithm of length."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import linregress, pearsonr

from infuser_core.errors import UsageError
from infuser_core.schemas import BenchmarkResponse, BenchmarkVerdict
from infuser_core.statistics.correlation import fit_lengths, length_statistics


def response(question: str, tokens: int, finish: str = "stop", benchmark: str = "exam") -> BenchmarkResponse:
    return BenchmarkResponse(
        benchmark=benchmark,
        question_id=question,
        sample_index=0,
        response="",
        finish_reason=finish,
        prompt_tokens=5,
        response_tokens=tokens,
    )


def verdict(row: BenchmarkResponse, word: str, preset: str = "paper") -> BenchmarkVerdict:
    return BenchmarkVerdict(
        benchmark=row.benchmark,
        question_id=row.question_id,
        sample_index=row.sample_index,
        preset=preset,
        verdict=word,
        extracted="",
        reason="",
        decided_by="verifier",
    )


def test_lengths_by_verdict():
    rows = [response(f"q{n}", 10 * n, "length" if n == 10 else "stop") for n in range(1, 11)]
    rows.append(response("long", 0, "prompt_too_long"))
    verdicts = [verdict(row, "correct" if n < 5 else "wrong") for n, row in enumerate(rows[:10])]
    verdicts.append(verdict(rows[10], "no_answer"))
    found = {row.group: row for row in length_statistics(rows, verdicts)}
    whole = found["all"]
    assert (whole.count, whole.mean, whole.median, whole.cut, whole.not_asked) == (10, 55, 55, 0.1, 1)
    assert whole.p90 == np.quantile(np.arange(10, 101, 10), 0.9) == 91
    assert (found["correct"].mean, found["wrong"].mean) == (30, 80)
    assert (found["correct"].cut, found["wrong"].cut) == (0, 0.2)
    assert found["no_answer"].count == 0 and found["no_answer"].not_asked == 1 and math.isnan(found["no_answer"].mean)


def test_benchmarks_stay_apart():
    rows = [response("q", 10), response("q", 30, benchmark="other")]
    found = length_statistics(rows, [verdict(row, "correct") for row in rows])
    assert [(row.benchmark, row.mean) for row in found if row.group == "all"] == [("exam", 10), ("other", 30)]


def test_responses_need_exactly_one_verdict():
    row = response("q", 10)
    with pytest.raises(UsageError, match="question q sample 0 has no verdict"):
        length_statistics([row], [])
    with pytest.raises(UsageError, match="several verdicts"):
        length_statistics([row], [verdict(row, "wrong"), verdict(row, "wrong", "official")])


points = st.lists(
    st.tuples(st.integers(1, 20_000), st.integers(0, 1000).map(lambda n: n / 1000)), min_size=4, max_size=20
)


@given(points)
def test_the_line_and_its_correlation_are_scipys(pairs: list[tuple[int, float]]):
    lengths, values = [float(length) for length, _ in pairs], [value for _, value in pairs]
    found = fit_lengths(lengths, values)
    if len(set(lengths)) < 2:
        assert (found.slope, found.pearson, found.reason) == (0.0, None, "all lengths are equal")
        assert found.intercept == pytest.approx(np.mean(values))
        return
    line = linregress(np.log(lengths), values)
    assert (found.intercept, found.slope) == pytest.approx((line.intercept, line.slope), rel=1e-7, abs=1e-7)
    if len(set(values)) < 2:
        assert found.pearson is None and (found.low, found.high) == (-1, 1)
        return
    expected = pearsonr(np.log(lengths), values)
    assert found.pearson == pytest.approx(expected.statistic, abs=1e-9)
    if abs(expected.statistic) < 0.999:
        ends = expected.confidence_interval(0.95)
        assert (found.low, found.high) == pytest.approx((ends.low, ends.high), abs=1e-6)


def test_three_points_have_a_line_but_no_interval():
    found = fit_lengths([100, 200, 400], [0.1, 0.2, 0.25])
    assert found.pearson is not None and (found.low, found.high) == (-1, 1)
    assert found.reason == "3 points are too few for an interval"


def test_points_on_a_line_are_the_interval():
    lengths = [1.0, math.e, math.e**2, math.e**3]
    found = fit_lengths(lengths, [0.0, 1.0, 2.0, 3.0])
    assert (found.slope, found.intercept) == pytest.approx((1, 0), abs=1e-12)
    assert found.pearson == pytest.approx(1) and found.low >= 1 - 1e-9


def test_lengths_without_a_logarithm_are_counted_and_left_out():
    found = fit_lengths([0, 10, 100, 1000, 50], [0.9, 0.1, 0.2, 0.3, 0.2])
    assert (found.points, found.left_out) == (4, 1)
    with pytest.raises(UsageError, match="above 0"):
        fit_lengths([0, 0], [0.1, 0.2])
