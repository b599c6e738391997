"""The adaptive budget's numbers: shares, floors, rounding, and that the bandit finds the arm that pays."""

import math
import random
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infuser_core.algorithm.budget import Arm, bandit, quotas, round_quotas

NAMES = st.text("abcdef", min_size=1, max_size=2)
REWARDS = st.lists(st.floats(-1, 1, allow_subnormal=False), max_size=6)
ARMS = st.dictionaries(NAMES, st.builds(Arm, room=st.integers(1, 40), rewards=REWARDS), min_size=1, max_size=8)
COUNTS = st.integers(1, 40)


@given(ARMS, COUNTS, st.floats(0, 3), st.floats(0, 0.99))
def test_shares_sum_to_one_and_no_arm_falls_below_the_floor(
    arms: dict[str, Arm], count: int, exploration: float, floor: float
):
    found = bandit(arms, count, exploration=exploration, floor=floor, fixed={})
    assert math.isclose(sum(each.share for each in found.values()), 1, rel_tol=1e-9)
    assert all(each.share >= min(floor, 1 / len(arms)) - 1e-12 for each in found.values())


@given(ARMS, COUNTS, st.floats(0.01, 0.9))
def test_a_constant_share_stays_what_it_is(arms: dict[str, Arm], count: int, share: float):
    arms = {**arms, "fixed": Arm(room=9, rewards=[5.0])}
    found = bandit(arms, count, exploration=1, floor=0.05, fixed={"fixed": share})
    assert found["fixed"].share == share
    assert math.isclose(sum(each.share for each in found.values()), 1, rel_tol=1e-9)


@given(st.dictionaries(NAMES, st.tuples(st.floats(0, 9), st.integers(0, 20)), min_size=1, max_size=8), COUNTS,
       st.floats(0, 0.999))  # fmt: skip
def test_whole_counts_are_the_quotas_rounded_and_fit(arms: dict[str, tuple[float, int]], count: int, offset: float):
    weights, room = ({name: pair[part] for name, pair in arms.items()} for part in (0, 1))
    exact = quotas(weights, room, count)
    counts = round_quotas(exact, offset)
    able = sum(room[name] for name in arms if weights[name] > 0)
    assert sum(exact.values()) == sum(counts.values()) == min(count, able)
    for name in arms:
        assert math.floor(exact[name]) <= counts[name] <= math.ceil(exact[name]) <= room[name]
        assert weights[name] > 0 or counts[name] == 0


def test_rounding_loses_no_small_share():
    exact = {"a": Fraction(57, 10), "b": Fraction(2, 10), "c": Fraction(1, 10)}
    rng = random.Random(0)
    drawn = [round_quotas(exact, rng.random()) for _ in range(4000)]
    for name, quota in exact.items():
        assert sum(counts[name] for counts in drawn) / len(drawn) == pytest.approx(float(quota), abs=0.05)


def test_what_an_exhausted_arm_lacks_the_others_take_in_proportion():
    assert quotas({"a": 8, "b": 1, "c": 1}, {"a": 2, "b": 50, "c": 50}, 10) == {"a": 2, "b": 4, "c": 4}


@given(st.integers(0, 20), st.floats(0.1, 5), st.floats(-9, 9))
def test_the_unit_of_the_reward_is_free(seed: int, scale: float, shift: float):
    rng = random.Random(seed)
    rewards = {name: [rng.gauss(0, 1) for _ in range(4)] for name in "abc"}
    one, other = (
        bandit(
            {name: Arm(room=30, rewards=[factor * value + added for value in rewards[name]]) for name in rewards},
            10, exploration=1, floor=0.05, fixed={},
        )
        for factor, added in ((1, 0), (scale, shift))
    )  # fmt: skip
    assert {name: each.share for name, each in one.items()} == {name: each.share for name, each in other.items()}


@pytest.mark.parametrize("seed", range(5))
def test_the_best_of_arms_that_do_not_change_gets_the_most(seed: int):
    rng = random.Random(seed)
    means = {"a": 0.0, "b": 0.02, "c": 0.06, "d": -0.02}
    rewards: dict[str, list[float]] = {name: [] for name in means}
    for iteration in range(40):
        arms = {name: Arm(room=100, rewards=rewards[name]) for name in means}
        shares = bandit(arms, 8, exploration=1, floor=0.05, fixed={})
        counts = round_quotas(
            quotas({name: s.share for name, s in shares.items()}, dict.fromkeys(means, 100), 8), rng.random()
        )
        for name, count in counts.items():
            rewards[name] += [rng.gauss(means[name], 0.04) for _ in range(count)]
        assert sum(counts.values()) == 8, iteration
    pulls = {name: len(values) for name, values in rewards.items()}
    assert max(pulls, key=pulls.__getitem__) == "c"
    assert pulls["c"] > 0.5 * 40 * 8


def test_before_any_measurement_arms_share_by_size():
    found = bandit({"a": Arm(room=30), "b": Arm(room=10)}, 4, exploration=1, floor=0, fixed={})
    assert {name: each.share for name, each in found.items()} == {"a": 0.75, "b": 0.25}


def test_an_arm_never_seen_is_tried_and_a_silent_one_keeps_its_floor():
    arms = {"known": Arm(room=50, rewards=[0.5, 0.4, 0.5]), "new": Arm(room=50), "mute": Arm(room=50, silent=True)}
    found = bandit(arms, 20, exploration=0.1, floor=0.05, fixed={})
    assert found["new"].share > found["mute"].share == pytest.approx(0.05)
    assert found["new"].bound is None is found["mute"].mean
