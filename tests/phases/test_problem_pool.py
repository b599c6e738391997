"""Problems with known answers become rows of the pool: distinct ones in turn, shuffled, none of the dev set's."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.problems import blank_rows, problem_rows
from infuser_core.config.roles import ProblemSettings
from infuser_core.config.sources import NanoQuestions
from infuser_core.schemas import Question


def problem(name: str, *, text: str = "", domain: str = "") -> Question:
    return Question(
        question_id=name, text=text or f"Find {name}.", choices=[], answer="7", verifier="integer", domain=domain,
        subdomain="", 
    )  # fmt: skip


def settings(count: int, **changes: object) -> ProblemSettings:
    return ProblemSettings(source=NanoQuestions(split="dev", size=1), count=count, **changes)


def test_the_papers_mixture_has_1210_putnam_and_8790_aime_rows():
    problems = [problem(f"putnam-{n}") for n in range(121)] + [problem(f"aime-{n}") for n in range(918)]
    made = problem_rows(0, problems, settings(10_000), [])
    counts = Counter(row.question_id for row in made.problems)
    assert Counter(name.split("-")[0] for name in counts.elements()) == {"putnam": 1_210, "aime": 8_790}
    assert {counts[f"putnam-{n}"] for n in range(121)} == {10}
    assert [counts[f"aime-{n}"] for n in (0, 527, 528, 917)] == [10, 10, 9, 9]


@given(unique=st.integers(1, 12), count=st.integers(1, 60), seed=st.integers(0, 5))
def test_rows_are_as_many_as_wanted_and_spread_evenly(unique: int, count: int, seed: int):
    made = problem_rows(1, [problem(f"q{n}") for n in range(unique)], settings(count, seed=seed), [])
    counts = Counter(row.question_id for row in made.problems)
    assert len(made.documents) == count == sum(counts.values())
    assert len({row.document_id for row in made.documents}) == count
    assert max(counts.values()) - min([*counts.values(), *([0] if count < unique else [])]) <= 1
    assert [row.document_id for row in made.documents] == [row.document_id for row in made.problems]


def test_the_seed_shuffles_and_decides_nothing_else():
    problems = [problem(f"q{n}") for n in range(5)]
    one, same, other = (problem_rows(0, problems, settings(40, seed=seed), []).documents for seed in (1, 1, 2))
    assert one == same != other
    assert sorted(one, key=str) == sorted(other, key=str)


def test_a_problem_of_the_dev_set_is_no_row_and_says_why():
    problems = [problem("q1"), problem("q2", text="What is  6 * 7?")]
    dev = [problem("dev-3", text="what is 6 * 7?")]
    made = problem_rows(0, problems, settings(4), dev)
    assert {row.question_id for row in made.problems} == {"q1"}
    (row,) = made.skipped
    assert (row.document_id, row.keep, row.reason) == ("p0-q2", False, "in the dev set: dev-3")
    kept = problem_rows(0, problems, settings(4, exclude_dev=False), dev)
    assert {row.question_id for row in kept.problems} == {"q1", "q2"} and kept.skipped == []


def test_a_problem_that_stands_twice_in_the_list_counts_once():
    twice = [problem("q1"), problem("q2"), replace(problem("q1"), question_id="q3")]
    made = problem_rows(0, twice, settings(6), [])
    assert Counter(row.question_id for row in made.problems) == {"q1": 3, "q2": 3}
    assert [row.reason for row in made.skipped] == ["the same as q1"]


def test_a_row_says_what_it_is_from_and_what_it_is_for():
    made = problem_rows(2, [problem("q1", domain="Algebra")], settings(1, route="free_form"), [])
    (document,) = made.documents
    assert (document.document_id, document.source_id, document.prompt_type) == ("p2-q1-0", "problems-2", "free_form")
    assert document.text == "Find q1.\n\nAnswer: 7" and document.domain == "Algebra"
    (labelled,) = problem_rows(2, [problem("q1", domain="Algebra")], settings(1, domain="Math"), []).documents
    assert labelled.domain == "Math"


def test_the_answer_to_choices_is_shown_with_its_text():
    chosen = replace(problem("q1"), choices=["6", "7"], answer="B")
    (document,) = problem_rows(0, [chosen], settings(1), []).documents
    assert document.text.endswith("A) 6\nB) 7\n\nAnswer: B) 7")


@pytest.mark.parametrize("count", [1, 3])
def test_blank_rows_have_a_route_and_no_text(count: int):
    made = blank_rows({"challenge": count})
    assert len({row.document_id for row in made}) == count
    assert {(row.text, row.prompt_type, row.num_tokens) for row in made} == {("", "challenge", 0)}
