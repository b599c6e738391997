"""Whether a benchmark's question stands in the validation set is decided by what it says, not by how it is written."""

import pytest

from infuser_core.cotrain.phases.parts.health import leak_warning
from infuser_core.evaluation.benchmarks.parts.validation import content_digest, count_leaks, question_key
from infuser_core.schemas import Question
from infuser_core.verifiers.parts.grading import Grading, as_text

LONG = "How many ways are there to seat five people around one table so that two of them are neighbours?"


def made(name: str, text: str, *choices: str, domain: str = "", grading: Grading = Grading()) -> Question:
    kind, answer = ("choice", "A") if choices else ("math", "1")
    return Question(
        question_id=name,
        text=text,
        choices=list(choices),
        answer=answer,
        verifier=kind,
        domain=domain,
        grading=as_text(grading),
    )


@pytest.mark.parametrize(
    "copy",
    [
        LONG.upper(),
        f"  {LONG}\n",
        LONG.replace(" ", "\n"),
        LONG.replace("?", ""),
        LONG.replace("table", "\uff54\uff41\uff42\uff4c\uff45"),
    ],
)
def test_case_blanks_signs_and_compatibility_forms_do_not_hide_a_copy(copy: str):
    assert question_key(made("a", copy)) == question_key(made("b", LONG))


def test_a_long_text_is_the_same_question_whatever_becomes_of_its_choices():
    assert (
        question_key(made("a", LONG, "1", "2"))
        == question_key(made("b", LONG, "2", "1", "N/A"))
        == question_key(made("c", LONG))
    )


def test_a_short_text_needs_its_choices_in_any_order():
    one = made("a", "Which is true?", "ice is cold", "fire is cold")
    assert question_key(one) == question_key(made("b", "which is TRUE", "fire is cold", "Ice is cold."))
    assert question_key(one) != question_key(made("c", "Which is true?", "ice is warm", "fire is cold"))


def test_texts_of_signs_alone_are_told_apart():
    assert question_key(made("a", "+ - ?")) != question_key(made("b", "- + ?"))
    assert question_key(made("a", "?", "<", ">")) != question_key(made("b", "?", "=", ">"))


def test_numbers_count():
    assert question_key(made("a", "Find 12 + 3.")) != question_key(made("b", "Find 1 + 23."))


def test_leaks_are_counted_per_benchmark_in_its_order():
    validation = [made("v1", LONG), made("v2", "Find 7."), made("v3", "Find 8.")]
    found = count_leaks(
        validation,
        {
            "two": [made("x", LONG), made("y", "Find 9.")],
            "none": [made("z", "Find 6.")],
            "empty": [],
            "all": validation[1:],
        },
    )
    assert [(leak.benchmark, leak.num_questions, leak.num_seen, leak.share) for leak in found] == [
        ("two", 2, 1, 0.5),
        ("none", 1, 0, 0.0),
        ("empty", 0, 0, 0.0),
        ("all", 2, 2, 1.0),
    ]
    assert "3 of 5 benchmark questions" in leak_warning(found) and leak_warning(found).endswith("it contains all whole")
    assert leak_warning(found[:1]).endswith("chooses the checkpoint")
    assert leak_warning(found[1:3]) == ""


def test_the_content_of_a_set_is_what_it_says_and_not_where_its_tests_lie():
    def coded(path: str, digest: str) -> Question:
        return made("a", "Write it.", grading=Grading(route="x", tests=path, tests_sha256=digest))

    assert content_digest([coded("/one/t.json", "11")]) == content_digest([coded("/two/t.json", "11")])
    assert content_digest([coded("/one/t.json", "11")]) != content_digest([coded("/one/t.json", "22")])
    assert content_digest([made("a", "Find 1.")]) != content_digest([made("a", "Find 2.")])
