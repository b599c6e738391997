"""What a design can see agrees with simulation, and unknown noise gives no number."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infuser_core.errors import UsageError
from infuser_core.statistics.bootstrap import (
    Variance,
    detectable_from,
    detectable_here,
    minimum_detectable,
    questions_needed,
    variance_parts,
)
from infuser_core.statistics.tally import Tally, from_counts


def solvers(rng: np.random.Generator, *, questions: int, samples: int, gain: float) -> tuple[Tally, Tally]:
    """Two solvers; the second gains between 0 and 2 x gain on a question."""
    chance = rng.uniform(0.1, 0.6, questions)
    more = chance + rng.uniform(0, 2 * gain, questions)
    first, second = ({f"q{n}": int(rng.binomial(samples, p)) for n, p in enumerate(p_Q)} for p_Q in (chance, more))
    return from_counts(first, samples), from_counts(second, samples)


def test_the_parts_are_those_that_were_simulated():
    rng = np.random.default_rng(0)
    gain = 0.15
    found = [variance_parts(*solvers(rng, questions=400, samples=6, gain=gain)) for _ in range(60)]
    between = float(np.mean([parts.between for parts in found]))
    within = float(np.mean([parts.within for parts in found]))
    # Var of U(0, 2g) is g^2/3; E p(1-p) of both solvers by the moments of their uniforms.
    chance, chance2 = 0.35, 0.35**2 + 0.5**2 / 12
    more, more2 = 0.35 + gain, (0.35 + gain) ** 2 + 0.5**2 / 12 + gain**2 / 3
    assert between == pytest.approx(gain**2 / 3, abs=0.002)
    assert within == pytest.approx(chance - chance2 + more - more2, rel=0.02)
    assert {(parts.samples, parts.questions) for parts in found} == {(6, 400)}


def test_an_effect_of_that_size_is_found_with_the_promised_power():
    rng = np.random.default_rng(1)
    effect = minimum_detectable(Variance(between=0.02, within=0.4, samples=4, questions=1), questions=100, samples=4)
    assert effect == pytest.approx((1.959964 + 0.841621) * math.sqrt((0.02 + 0.1) / 100), rel=1e-6)
    gains = rng.normal(effect, math.sqrt(0.12), size=(4000, 100))
    tests = np.abs(gains.mean(1)) / (gains.std(1, ddof=1) / 10) > 1.984
    assert tests.mean() == pytest.approx(0.8, abs=0.025)


@given(
    st.floats(0.001, 1), st.floats(0.001, 1), st.integers(2, 10_000), st.integers(1, 64), st.sampled_from([0.8, 0.9])
)
def test_more_questions_and_more_samples_see_more(
    between: float, within: float, questions: int, samples: int, power: float
):
    variance = Variance(between=between, within=within, samples=8, questions=50)
    here = minimum_detectable(variance, questions=questions, samples=samples, power=power)
    more = minimum_detectable(variance, questions=4 * questions, samples=samples, power=power)
    longer = minimum_detectable(variance, questions=questions, samples=2 * samples, power=power)
    assert here is not None and more == pytest.approx(here / 2) and longer is not None and longer < here
    needed = questions_needed(variance, effect=here, samples=samples, power=power)
    assert needed in (questions, questions + 1)


def test_the_comparison_that_was_made_has_its_own_effect():
    first, second = solvers(np.random.default_rng(2), questions=80, samples=5, gain=0.1)
    parts = variance_parts(first, second)
    here = detectable_here(first, second)
    # Equal numbers of samples everywhere: both ways of asking are the same.
    assert here == pytest.approx(minimum_detectable(parts, questions=80, samples=5), rel=1e-9)


def test_one_response_per_question_cannot_tell_the_parts_apart():
    first = from_counts({f"q{n}": int(n % 3 == 0) for n in range(30)}, 1)
    second = from_counts({f"q{n}": int(n % 2 == 0) for n in range(30)}, 1)
    parts = variance_parts(first, second)
    assert parts.within == 0 and parts.samples == 1 and parts.between > 0
    assert minimum_detectable(parts, questions=30, samples=1) == pytest.approx(detectable_here(first, second))
    assert minimum_detectable(parts, questions=30, samples=8) is None
    assert questions_needed(parts, effect=0.1, samples=8) is None


def test_where_nothing_varies_there_is_no_number():
    same = from_counts({f"q{n}": n % 2 for n in range(20)}, 1)
    assert detectable_here(same, same) is None
    assert minimum_detectable(variance_parts(same, same), questions=20, samples=1) is None
    assert detectable_from(np.array([0.5])) is None


def test_impossible_designs_are_refused():
    variance = Variance(between=0.1, within=0.1, samples=4, questions=10)
    with pytest.raises(UsageError, match="0 questions"):
        minimum_detectable(variance, questions=0, samples=1)
    with pytest.raises(UsageError, match="power"):
        minimum_detectable(variance, questions=5, samples=1, power=1.0)
    with pytest.raises(UsageError, match="effect"):
        questions_needed(variance, effect=0.0, samples=1)
    with pytest.raises(UsageError, match="two common questions"):
        variance_parts(from_counts({"a": 1}, 1), from_counts({"a": 0}, 1))
