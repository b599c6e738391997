"""Dev members against the rest: the parts make the whole, and a leak shows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infuser_core.errors import UsageError
from infuser_core.evaluation.statistics.bootstrap import leakage
from infuser_core.evaluation.statistics.tally import accuracy, from_counts

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
