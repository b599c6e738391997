"""Which checkpoint is selected: the best, the earliest of equals, or the earliest within the noise."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infuser_core.cotrain.phases.select import select
from infuser_core.schemas import BenchmarkScore, QuestionScore

NUMBER = 8


def score(number: int, accuracy: float) -> BenchmarkScore:
    return BenchmarkScore(
        benchmark="validation",
        checkpoint_id=f"checkpoint-{number}",
        num_questions=NUMBER,
        num_samples=1,
        accuracy=accuracy,
        low=0.0,
        high=1.0,
        answered=1.0,
        unverified=0,
        mean_response_tokens=1.0,
    )


def answers(right: list[bool]) -> list[QuestionScore]:
    return [
        QuestionScore(
            benchmark="validation", question_id=f"q{place}", domain="", num_samples=1, num_correct=int(one),
            num_no_answer=0, num_unverified=0, num_cut=0, too_long=False, mean_response_tokens=1.0,
        )
        for place, one in enumerate(right)
    ]  # fmt: skip


RIGHT = st.lists(st.lists(st.booleans(), min_size=NUMBER, max_size=NUMBER), min_size=1, max_size=6)


def choose(rights: list[list[bool]], rule: str = "best"):
    scores = [score(number, sum(right) / NUMBER) for number, right in enumerate(rights)]
    return select([5 * n for n in range(len(rights))], scores, [answers(right) for right in rights], rule=rule)


@given(RIGHT)
def test_the_earliest_of_the_best_is_selected(rights: list[list[bool]]):
    candidates = choose(rights)
    accuracies = [sum(right) / NUMBER for right in rights]
    assert [candidate.at_iteration for candidate in candidates] == [5 * n for n in range(len(rights))]
    assert [candidate.accuracy for candidate in candidates] == accuracies
    (chosen,) = [candidate for candidate in candidates if candidate.selected]
    assert chosen.at_iteration == 5 * accuracies.index(max(accuracies))
    assert chosen.checkpoint_id == f"checkpoint-{accuracies.index(max(accuracies))}"


@given(RIGHT)
def test_candidates_say_how_far_they_are_behind_and_how_sure_that_is(rights: list[list[bool]]):
    candidates = choose(rights)
    best = next(place for place, candidate in enumerate(candidates) if candidate.selected)
    for right, candidate in zip(rights, candidates, strict=True):
        differences = [int(a) - int(b) for a, b in zip(rights[best], right, strict=True)]
        mean = sum(differences) / NUMBER
        error = math.sqrt(sum((d - mean) ** 2 for d in differences) / (NUMBER - 1) / NUMBER)
        assert candidate.behind == pytest.approx(mean)
        assert candidate.behind_error == pytest.approx(error)


def test_within_noise_takes_the_earliest_that_is_not_clearly_behind():
    low, near, best = [False] * 8, [True] * 5 + [False] * 3, [True] * 4 + [False, True, True, False]
    chosen = [c.at_iteration for c in choose([low, near, best], "within_noise") if c.selected]
    assert chosen == [5], "one question behind, three differ: less than one standard error"
    assert [c.at_iteration for c in choose([low, near, best]) if c.selected] == [10]


@given(RIGHT)
def test_within_noise_is_never_later_than_the_best(rights: list[list[bool]]):
    (best,) = [c for c in choose(rights) if c.selected]
    (chosen,) = [c for c in choose(rights, "within_noise") if c.selected]
    assert chosen.at_iteration <= best.at_iteration
    assert chosen.behind == 0 or chosen.behind < chosen.behind_error


def test_nothing_to_choose_from_is_an_error():
    with pytest.raises(ValueError, match="evaluate at least one checkpoint"):
        select([], [], [])
    with pytest.raises(ValueError, match="not a number"):
        select([0, 1], [score(0, 0.5), score(1, float("nan"))], [[], []])
