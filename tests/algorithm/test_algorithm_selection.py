import pytest
from hypothesis import given
from hypothesis import strategies as st

from infuser_core.algorithm.selection import best_index, stratified_order
from infuser_core.algorithm.shaping import generator_reward, solver_reward


def test_the_earliest_best_checkpoint_wins() -> None:
    assert best_index([0.1, 0.5, 0.5, 0.2]) == 1


@pytest.mark.parametrize("accuracies", [[], [0.1, float("nan")]])
def test_nothing_to_choose_from_is_an_error(accuracies: list[float]) -> None:
    with pytest.raises(ValueError, match="validation accuracy"):
        best_index(accuracies)


def test_documents_are_spread_evenly() -> None:
    order = stratified_order(["A"] * 8 + ["B"] * 4 + ["C"] * 2)
    assert order == [0, 8, 1, 12, 2, 9, 3, 4, 10, 5, 13, 6, 11, 7]


def test_singletons_keep_their_order() -> None:
    assert stratified_order(list("DBCA")) == [0, 1, 2, 3]
    assert stratified_order(["A", "B", "C", *"DDDDDD"])[3:6] == [0, 1, 2]


@given(st.lists(st.sampled_from("abcde")))
def test_every_row_once(documents: list[str]) -> None:
    assert sorted(stratified_order(documents)) == list(range(len(documents)))


def test_solver_rewards() -> None:
    assert solver_reward("correct", "stop", mid_eos_penalty=-0.5) == 1.0
    assert solver_reward("wrong", "stop", mid_eos_penalty=-0.5) == 0.0
    assert solver_reward("no_answer", "stop", mid_eos_penalty=-0.5) == -0.5
    assert solver_reward("no_answer", "length", mid_eos_penalty=-0.5) == 0.0
    assert solver_reward("unverified", "stop", mid_eos_penalty=-0.5) == 0.0
    assert solver_reward("no_answer", "stop") == 0.0


def test_generator_rewards() -> None:
    assert generator_reward(0.25, invalid_penalty=-1.0) == 0.25
    assert generator_reward(None, invalid_penalty=-1.0) == -1.0
