"""The checkpoint with the highest validation accuracy is selected; the earliest of equals."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infuser_core.phases.select import select
from infuser_core.schemas import BenchmarkScore


def score(number: int, accuracy: float) -> BenchmarkScore:
    return BenchmarkScore(
        benchmark="validation",
        checkpoint_id=f"checkpoint-{number}",
        num_questions=10,
        num_samples=1,
        accuracy=accuracy,
        low=0.0,
        high=1.0,
        answered=1.0,
        unverified=0,
        mean_response_tokens=1.0,
    )


@given(st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=1, max_size=8))
def test_the_earliest_of_the_best_is_selected(accuracies: list[float]):
    iterations = [5 * number for number in range(len(accuracies))]
    candidates = select(iterations, [score(number, accuracy) for number, accuracy in enumerate(accuracies)])
    assert [candidate.at_iteration for candidate in candidates] == iterations
    assert [candidate.accuracy for candidate in candidates] == accuracies
    (chosen,) = [candidate for candidate in candidates if candidate.selected]
    assert chosen.accuracy == max(accuracies)
    assert chosen.at_iteration == 5 * accuracies.index(max(accuracies))
    assert chosen.checkpoint_id == f"checkpoint-{accuracies.index(max(accuracies))}"


def test_nothing_to_choose_from_is_an_error():
    with pytest.raises(ValueError, match="evaluate at least one checkpoint"):
        select([], [])
    with pytest.raises(ValueError, match="not a number"):
        select([0, 1], [score(0, 0.5), score(1, float("nan"))])
