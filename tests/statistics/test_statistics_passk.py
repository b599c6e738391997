"""pass@k is the share of subsets of k responses that hold a correct one."""

from itertools import combinations, pairwise
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infuser_core.evaluation.statistics.passk import pass_curve, pass_values, powers_of_two
from infuser_core.evaluation.statistics.tally import from_counts


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
