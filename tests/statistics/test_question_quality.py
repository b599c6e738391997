"""Checks of generated questions: pointing at unseen texts, keys against a majority, copies, the same document."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infuser_core.evaluation.statistics.question_quality import (
    CheckedQuestion,
    check_key,
    count_copies,
    find_pointer,
    iteration_quality,
    side_by_side,
)
from infuser_core.schemas import BenchmarkVerdict


@pytest.mark.parametrize(
    "text",
    [
        "According to the passage, what drives the pump?",
        "As described in this section, which cell divides?",
        "Which claim follows from the given text?",
        "What is the slope in the figure above?",
        "What does Figure 3.2 show about pressure?",
        "By Theorem 4, how large is the index?",
        "What does the author argue about tides?",
        "Which law, as discussed earlier, fails here?",
        "Based on the graph, when is it fastest?",
    ],
)
def test_a_question_that_points_at_an_unseen_text_is_found(text: str):
    assert find_pointer(text) and find_pointer(text) in text


@pytest.mark.parametrize(
    "text",
    [
        "Which element of the periodic table has 8 protons?",
        "A graph has 5 vertices. How many edges can it have?",
        "What is the section modulus of a square beam?",
        "Consider the equation 2x = 4. What is x?",
        "A book lies on a table. Which force holds it?",
        "A cell divides twice. What is left in the cell described above?",
        "The clock Colu shows 7 and runs 8 hours. What time?",
        "Which of the statements I and II is true?",
    ],
)
def test_one_that_stands_alone_is_left_in_peace(text: str):
    assert find_pointer(text) == ""


def verdicts(*extracted: str, key: str = "B") -> list[BenchmarkVerdict]:
    return [
        BenchmarkVerdict(
            benchmark="b", question_id="q", sample_index=place, preset="paper", extracted=said, reason="",
            decided_by="verifier", verdict="correct" if said == key else "wrong" if said else "no_answer",
        )
        for place, said in enumerate(extracted)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("said", "finding", "answer"),
    [
        (("B", "B", "A"), "agrees", "B"),
        (("C", "C", "B"), "disputes", "C"),
        (("C", "D", "B"), "undecided", ""),
        (("B", "B", "C", "C"), "undecided", ""),
        (("", "", "C"), "undecided", ""),
    ],
)
def test_more_than_half_of_the_answers_decide(said: tuple[str, ...], finding: str, answer: str):
    assert check_key(verdicts(*said)) == (finding, answer)


@given(st.lists(st.sampled_from("ABC"), min_size=1, max_size=9))
def test_a_key_is_never_both_right_and_disputed(said: list[str]):
    findings = {key: check_key(verdicts(*said, key=key))[0] for key in "ABC"}
    assert sum(finding == "agrees" for finding in findings.values()) <= 1
    if "agrees" in findings.values():
        assert "disputes" in findings.values() and "undecided" not in findings.values()


def test_copies_differ_in_case_and_spacing_alone():
    assert count_copies({"a": "What is  2?", "b": "what is 2?", "c": "What is 3?"}) == {"a": 1, "b": 1, "c": 0}


def checked(iteration: int, name: str, **changes: object) -> CheckedQuestion:
    plain = CheckedQuestion(
        iteration=iteration, question_id=name, document_id="d1", text="t", choices=[], answer="A", copies=0,
        points_at="", self_contained=True, decided_by="rules", missing="", key="", majority="", oracle="", agreement=[],
    )  # fmt: skip
    return replace(plain, **changes)  # type: ignore[arg-type]


def test_an_iterations_questions_in_numbers():
    rows = [
        checked(3, "a", copies=1, key="agrees", oracle="sound"),
        checked(3, "b", copies=1, key="disputes", oracle="unsound", points_at="the text", self_contained=False),
        checked(3, "c", key="disputes", oracle="sound", decided_by="judge", self_contained=False, missing="a unit"),
        checked(3, "d", key="undecided", oracle="unknown", decided_by="judge", points_at="Figure 2"),
    ]
    found = iteration_quality(rows)
    assert (found["questions"], found["distinct"], found["self_contained"], found["pointing"]) == (4, 0.75, 0.5, 2)
    assert (found["judged"], found["overruled"]) == (2, 2)
    assert found["keys"] == {"agrees": 1, "disputes": 2, "undecided": 1}
    assert (found["oracle_checked"], found["oracle_sound"], found["oracle_disputed"]) == (3, 2 / 3, 0.5)
    assert found["low"] < 0.5 < found["high"]
    bare = iteration_quality([checked(1, "a")])
    assert (bare["keys"], bare["oracle_sound"], bare["oracle_disputed"]) == ({}, None, None)


def test_the_same_document_is_shown_at_its_first_and_last_iteration():
    rows = [checked(n, f"{n}/{m}", document_id=f"d{m}") for n, m in ((0, 1), (2, 1), (5, 1), (2, 2), (5, 2), (5, 3))]
    first, second = side_by_side([*rows, checked(5, "x", document_id="")], count=9)
    assert (first["document_id"], first["before"]["iteration"], first["after"]["iteration"]) == ("d1", 0, 5)
    assert (second["document_id"], second["before"]["iteration"], second["after"]["iteration"]) == ("d2", 2, 5)
    assert side_by_side(rows, count=1) == [first]
