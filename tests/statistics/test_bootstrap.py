"""Bootstrap intervals, paired differences, and the effect of leaked questions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infuser_core.errors import UsageError
from infuser_core.evaluation.statistics.bootstrap import (
    detectable,
    difference,
    estimate,
    leakage,
    paired_difference,
    resampled_means,
    sign_share,
)
from infuser_core.evaluation.statistics.tally import accuracy, from_counts, shares


def one_by_one(values: np.ndarray, draws: int, seed: int) -> np.ndarray:
    """Plain resampling of questions."""
    rng = np.random.default_rng(seed)
    return np.array([values[rng.integers(0, len(values), len(values))].mean() for _ in range(draws)])


def moments(values: np.ndarray) -> tuple[float, float]:
    """Mean and variance of the bootstrap distribution itself."""
    return float(values.mean()), float(values.var() / len(values))


@pytest.mark.parametrize("distinct", [2, 7, 400])
def test_both_ways_of_drawing_have_the_distribution_of_plain_resampling(distinct: int):
    values = np.random.default_rng(5).integers(0, distinct, 300) / distinct
    fast, plain = resampled_means(values, draws=8000, seed=1)[:, 0], one_by_one(values, 8000, 2)
    mean, variance = moments(values)
    # The standard error of a mean of 8,000 draws is 1.1% of their deviation; five of those.
    assert abs(fast.mean() - mean) < 0.056 * variance**0.5
    assert fast.var() == pytest.approx(variance, rel=0.08)
    levels = [0.025, 0.25, 0.5, 0.75, 0.975]
    spacing = 0.12 * variance**0.5
    np.testing.assert_allclose(np.quantile(fast, levels), np.quantile(plain, levels), atol=spacing)


def test_columns_share_their_draws():
    drawn = resampled_means(np.arange(12.0)[:, None] * np.arange(1, 4), draws=50, seed=7)
    np.testing.assert_allclose(drawn, drawn[:, :1] * np.arange(1, 4), rtol=1e-12)


@pytest.mark.parametrize("distinct", [3, 40])
def test_draws_do_not_depend_on_how_many_are_made_at_a_time(distinct: int):
    values = np.arange(40.0) % distinct
    whole = resampled_means(values, draws=300, seed=3)
    parts = resampled_means(values, draws=300, seed=3, cells=400)
    assert whole.shape == parts.shape == (300, 1)
    np.testing.assert_allclose(whole, parts, rtol=1e-12)


def test_nothing_to_resample_is_refused():
    with pytest.raises(UsageError, match="no questions"):
        resampled_means(np.zeros(0))


def test_questions_without_differences_have_no_width():
    found = estimate(np.full(30, 0.25), draws=200)
    assert (found.value, found.low, found.high) == (0.25, 0.25, 0.25)


def test_a_difference_is_paired_and_signed():
    first = from_counts({f"q{n}": n % 3 for n in range(60)}, 4)
    second = from_counts({f"q{n}": n % 3 + 1 for n in range(10, 70)}, 4)
    found = difference(first, second, draws=2000)
    # Every common question gains one response of four: pairing leaves no noise at all.
    assert found.value == pytest.approx(0.25) and found.low == pytest.approx(0.25) and found.high == pytest.approx(0.25)
    assert (found.questions, found.left_out) == (50, 20)
    assert found.share == 2 / 2001
    assert difference(second, first, draws=2000).value == pytest.approx(-0.25)
    with pytest.raises(UsageError, match="none in common"):
        difference(first, from_counts({"another": 1}, 4))


def test_pairing_is_narrower_than_two_separate_intervals():
    rng = np.random.default_rng(7)
    ability = rng.random(200)
    first, second = (
        from_counts({f"q{n}": int(rng.binomial(8, p)) for n, p in enumerate(ability)}, 8) for _ in range(2)
    )
    paired = difference(first, second, draws=2000)
    apart = [estimate(shares(tally), draws=2000) for tally in (first, second)]
    width = sum((found.high - found.low) ** 2 for found in apart) ** 0.5
    assert paired.high - paired.low < 0.6 * width


@pytest.mark.parametrize(("gain", "small"), [(0.0, False), (0.3, True)])
def test_the_sign_share_is_small_when_the_sign_is_clear(gain: float, small: bool):
    rng = np.random.default_rng(3)
    first = (rng.random(150) < 0.4).astype(float)
    second = (rng.random(150) < 0.4 + gain).astype(float)
    assert (paired_difference(first, second, draws=2000).share < 0.01) is small


def test_the_sign_share_of_no_difference_is_one():
    assert sign_share(np.zeros(100)) == 1.0
    # 0.1 + 0.2 - 0.3 is no difference.
    assert sign_share(np.full(100, 0.1 + 0.2 - 0.3)) == 1.0


def coverage(*, clustered: bool) -> float:
    """Share of 400 simulated benchmarks (50 questions x 8 samples) whose interval holds the true accuracy."""
    rng = np.random.default_rng(11)
    hits = 0
    for trial in range(400):
        chance = rng.beta(0.6, 0.6, 50)
        tally = from_counts({f"q{n}": int(rng.binomial(8, p)) for n, p in enumerate(chance)}, 8)
        values = shares(tally)
        if not clustered:
            right = int(tally.correct_Q.sum())
            values = np.repeat([1.0, 0.0], [right, 400 - right])
        found = estimate(values, draws=1000, seed=trial)
        hits += found.low <= 0.5 <= found.high
    return hits / 400


def test_intervals_over_questions_cover_near_their_nominal_level():
    assert 0.915 <= coverage(clustered=True) <= 0.975


def test_intervals_over_responses_would_not():
    assert coverage(clustered=False) < 0.85


def test_paired_intervals_cover_the_true_difference():
    rng = np.random.default_rng(12)
    hits = 0
    for trial in range(400):
        chance = rng.beta(1, 1, 60) * 0.8
        gain = rng.uniform(0, 0.2, 60)
        first = {f"q{n}": int(rng.binomial(4, p)) for n, p in enumerate(chance)}
        second = {f"q{n}": int(rng.binomial(4, p)) for n, p in enumerate(chance + gain)}
        found = difference(from_counts(first, 4), from_counts(second, 4), draws=1000, seed=trial)
        hits += found.low <= 0.1 <= found.high
    assert 0.915 <= hits / 400 <= 0.975


def test_a_detectable_effect_is_found_with_the_promised_power():
    rng = np.random.default_rng(1)
    effect = detectable(rng.normal(0, 0.12**0.5, 100_000))
    assert effect == pytest.approx((1.959964 + 0.841621) * (0.12 / 100_000) ** 0.5, rel=0.01)
    gains = rng.normal(effect * 1000**0.5, 0.12**0.5, size=(4000, 100))
    tests = np.abs(gains.mean(1)) / (gains.std(1, ddof=1) / 10) > 1.984
    assert tests.mean() == pytest.approx(0.8, abs=0.025)


@pytest.mark.parametrize("gains", [[0.5], [0.25] * 20])
def test_where_nothing_varies_no_effect_is_detectable(gains: list[float]):
    assert detectable(np.array(gains)) is None


# Dev members against the rest: the parts make the whole, and a leak shows


tables = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.booleans()), min_size=2, max_size=40)


@given(tables)
@settings(max_examples=50)
def test_the_two_sides_make_the_whole(rows: list[tuple[int, int, bool]]):
    base = from_counts({f"q{n}": row[0] for n, row in enumerate(rows)}, 4)
    trained = from_counts({f"q{n}": row[1] for n, row in enumerate(rows)}, 4)
    dev = {f"q{n}" for n, row in enumerate(rows) if row[2]}
    if len(dev) in (0, len(rows)):
        with pytest.raises(UsageError, match="nothing to compare"):
            leakage(base, trained, dev, draws=20)
        return
    found = leakage(base, trained, dev, draws=50)
    whole, inside, outside = len(rows), found["dev"]["questions"], found["rest"]["questions"]
    assert (inside, outside, found["full"]["questions"]) == (len(dev), whole - len(dev), whole)
    for side, tally in (("base", base), ("trained", trained)):
        parts = inside * found["dev"][side] + outside * found["rest"][side]
        assert accuracy(tally) * whole == pytest.approx(parts, abs=1e-9)
        assert found["full"][side] == pytest.approx(accuracy(tally))
    assert found["gap"] == pytest.approx(found["dev"]["delta"] - found["rest"]["delta"], abs=1e-12)


def simulated(gain_dev: float, gain_rest: float) -> tuple[float, float, float, float]:
    rng = np.random.default_rng(4)
    names = [f"q{n}" for n in range(600)]
    dev = set(names[:200])
    chance = rng.uniform(0.1, 0.5, 600)
    gain = np.array([gain_dev if name in dev else gain_rest for name in names])
    base, trained = (
        from_counts(dict(zip(names, map(int, rng.binomial(2, p)), strict=True)), 2) for p in (chance, chance + gain)
    )
    found = leakage(base, trained, dev, draws=2000)
    return found["gap"], found["gap_low"], found["gap_high"], found["share"]


def test_a_gain_on_dev_members_only_is_a_leak():
    gap, low, high, share = simulated(0.45, 0.05)
    assert low > 0.2 and low < gap < high and share < 0.01


def test_an_even_gain_is_none():
    gap, low, high, share = simulated(0.2, 0.2)
    assert low < 0 < high and low < gap < high and share > 0.05


def test_models_on_different_questions_are_compared_on_the_common_ones():
    base = from_counts({"a": 0, "b": 1, "c": 0, "x": 1}, 1)
    trained = from_counts({"a": 1, "b": 1, "c": 0}, 1)
    found = leakage(base, trained, ["a"], draws=20)
    assert (found["left_out"], found["full"]["questions"], found["dev"]["delta"], found["rest"]["delta"]) == (
        1,
        3,
        1,
        0,
    )
