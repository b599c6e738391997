import random
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infuser_core.capacity.sampling import Spread


@pytest.mark.parametrize(("of", "rows"), [(1, 1), (8, 1), (8, 4), (64, 2)])
def test_the_longest_of_several_sums_is_as_far_out_as_in_a_draw(of: int, rows: int):
    spread = Spread(mean=700, deviation=0.7, limit=8192)
    draw = random.Random(1)
    drawn = [
        max(sum(spread.quantile(draw.random()) for _ in range(rows)) for _ in range(of)) for _ in range(200_00 // of)
    ]
    assert spread.longest(of, rows=rows) == pytest.approx(fmean(drawn), rel=0.05)


@given(mean=st.floats(2, 4000), deviation=st.floats(0, 2), of=st.integers(1, 64), rows=st.integers(1, 8))
def test_the_longest_lies_between_the_mean_and_the_limit(mean: float, deviation: float, of: int, rows: int):
    spread = Spread(mean=mean, deviation=deviation, limit=8192)
    assert rows * spread.mean_cut() * 0.98 <= spread.longest(of, rows=rows) * 1.02 + 1
    assert spread.longest(of, rows=rows) <= rows * 8192
    assert spread.longest(of + 1, rows=rows) >= spread.longest(of, rows=rows)


def test_equal_lengths_have_no_stragglers():
    spread = Spread(mean=500, deviation=0, limit=8192)
    assert spread.longest(64, rows=4, prompt=100) == 2400
    assert set(spread.lengths(10)) == {500}


@pytest.mark.parametrize("count", [1, 7, 100, 801])
def test_lengths_have_the_mean_of_the_distribution(count: int):
    spread = Spread(mean=700, deviation=0.7, limit=8192)
    lengths = spread.lengths(count)
    assert len(lengths) == count
    assert fmean(lengths) == pytest.approx(spread.mean_cut(), rel=0.03 if count >= 100 else 0.3)


def test_only_what_differs_within_a_prompt_delays_ranks_with_the_same_prompts():
    alike = Spread(mean=700, deviation=0.7, limit=8192, within=0.0)
    apart = Spread(mean=700, deviation=0.7, limit=8192, within=1.0)
    assert alike.longest_beside(8, rows=1, prompt=0) == pytest.approx(alike.mean_cut())
    assert apart.longest_beside(8, rows=1, prompt=0) > 2 * apart.mean_cut()
