import pytest
from hypothesis import given
from hypothesis import strategies as st

from infuser_core.algorithm.advantage import NORMALISERS, advantages, batch_sigma, is_flat

D1, D2 = [0.0, 1.0, 2.0, 3.0], [0.0, 0.1, 0.2, 0.1]

TABLE = {
    "leave_one_out": ([-2.0, -0.666667, 0.666667, 2.0], [-0.133333, 0.0, 0.133333, 0.0]),
    "mean_centred": ([-1.5, -0.5, 0.5, 1.5], [-0.1, 0, 0.1, 0]),
    "group_std": ([-1.161894, -0.387298, 0.387298, 1.161894], [-1.22473, 0, 1.22473, 0]),
    "dugrpo": ([-0.758604, -0.252868, 0.252868, 0.758604], [-0.130213, 0, 0.130213, 0]),
    "batch_pooled_std": ([-1.771283, -0.590428, 0.590428, 1.771283], [-0.118086, 0, 0.118086, 0]),
    "batch_mean_std": ([-2.18556, -0.72852, 0.72852, 2.18556], [-0.145704, 0, 0.145704, 0]),
}


@pytest.mark.parametrize("name", sorted(NORMALISERS))
def test_reference_values(name: str) -> None:
    first, second = advantages([D1, D2], normaliser=name)
    assert first == pytest.approx(TABLE[name][0], abs=2e-6)
    assert second == pytest.approx(TABLE[name][1], abs=2e-6)


def test_a_single_row_gets_no_credit_and_stays_out_of_sigma_b() -> None:
    first, second = advantages([[0.001, 0.002, 0.003], [0.004]], normaliser="dugrpo")
    assert first == pytest.approx([-0.49975, 0, 0.49975], abs=1e-5)
    assert second == [0.0]


def test_flat_groups_enter_sigma_b_only_in_the_paper_form() -> None:
    groups = [D1, [5.0, 5.0, 5.0]]
    assert batch_sigma(groups, sigma_b="all") == pytest.approx(1.290994 / 2, abs=1e-6)
    assert batch_sigma(groups, sigma_b="nonzero") == pytest.approx(1.290994, abs=1e-6)


def test_groups_of_one_value_or_fewer_than_two_rows_are_flat() -> None:
    assert [is_flat(rewards_G) for rewards_G in ([0.1, 0.1, 0.1], [0.0, 1.0], [2.0], [])] == [True, False, True, True]


@pytest.mark.parametrize("name", sorted(NORMALISERS))
def test_flat_groups_have_exactly_zero_advantage(name: str) -> None:
    assert advantages([[0.1] * 7, D1], normaliser=name)[0] == [0.0] * 7


@pytest.mark.parametrize("name", sorted(NORMALISERS))
@given(groups=st.lists(st.lists(st.floats(-10, 10), max_size=9), max_size=6))
def test_advantages_sum_to_zero_and_keep_shapes(name: str, groups: list[list[float]]) -> None:
    for sigma_b in ("all", "nonzero"):
        result = advantages(groups, normaliser=name, sigma_b=sigma_b)
        assert [len(each) for each in result] == [len(each) for each in groups]
        for each in result:
            assert sum(each) == pytest.approx(0, abs=1e-6 * max(1.0, *map(abs, each)) if each else 1e-6)
