"""The mathematics verifier on hand-made cases: what public graders agree on, and what is written to fool a grader."""

import json
from typing import Any

import pytest
from places import DATA

from infuser_core.errors import DocumentError
from infuser_core.schemas import Question, Verdict
from infuser_core.verifiers import math
from infuser_core.verifiers.parts.batch import Job
from infuser_core.verifiers.parts.grading import Finding

SUITES = ("math_suites", "math_adversarial", "math_fresh", "math_domains")


def cases(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATA / f"{name}.jsonl").read_text().splitlines()]


def job(case: dict[str, Any]) -> Job:
    grading = json.dumps(case["grading"]) if "grading" in case else ""
    question = Question(
        question_id="q", text=case.get("question", "?"), choices=[], answer=case["gold"], verifier="math", domain="",
        subdomain="", grading=grading,
    )  # fmt: skip
    return Job(response=rf"Hence \boxed{{{case['answer']}}}.", question=question)


@pytest.fixture(scope="module")
def findings() -> dict[str, list[Finding]]:
    """Of every suite, hang probes aside: they take their time limit each."""
    return {name: math.check_many([job(case) for case in quick(name)]) for name in SUITES}


def quick(name: str) -> list[dict[str, Any]]:
    return [case for case in cases(name) if not case.get("probe")]


@pytest.mark.parametrize("name", SUITES)
def test_nothing_wrong_is_ever_called_correct(name: str, findings: dict[str, list[Finding]]):
    pairs = zip(quick(name), findings[name], strict=True)
    fooled = [case for case, found in pairs if case["expected"] != "correct" and found.verdict == Verdict.CORRECT]
    assert fooled == []


@pytest.mark.parametrize("name", SUITES)
def test_what_is_right_is_called_correct(name: str, findings: dict[str, list[Finding]]):
    pairs = zip(quick(name), findings[name], strict=True)
    missed = [case for case, found in pairs if case["expected"] == "correct" and found.verdict != Verdict.CORRECT]
    # A backslash before the brace that should close the box: whether such a box closes is the extractor's decision.
    assert [case for case in missed if not case["answer"].endswith("\\")] == []


@pytest.mark.parametrize("name", SUITES)
def test_wrong_answers_are_wrong_and_not_undecided(name: str, findings: dict[str, list[Finding]]):
    pairs = zip(quick(name), findings[name], strict=True)
    assert [case for case, found in pairs if case["expected"] == "wrong" and found.verdict != Verdict.WRONG] == []


@pytest.mark.parametrize("name", SUITES)
def test_every_answer_is_its_own_reference(name: str):
    golds = [{**case, "answer": case["gold"]} for case in quick(name)]
    found = math.check_many([job(case) for case in golds])
    assert [case["gold"] for case, one in zip(golds, found, strict=True) if one.verdict != Verdict.CORRECT] == []


def test_a_tolerance_that_is_no_number_is_an_error():
    case = {"gold": "2", "answer": "1", "grading": {"tolerance": "small"}}
    with pytest.raises(DocumentError, match="small"):
        math.check_many([job(case)])


@pytest.mark.parametrize("truth", [r"127.32\%", "127.32%", "50%", r"100\% + 5\%"])
def test_canonical_answers_have_no_percent_sign(truth: str):
    assert "%" not in math.canonical(truth)
    assert math.parseable(truth)


@pytest.mark.parametrize(
    "truth", [r"(n!)^2", r"(n!)^2 \geq n^n", r"\frac{1}{2}", "10^{-8}", "n!", r"\sum_{k=1}^n k", "3", "x=1 or x=2"]
)
def test_readable_references_are_left_alone(truth: str):
    assert math.canonical(truth) == truth
    assert math.parseable(truth)


@pytest.mark.parametrize(
    "truth",
    [
        "n!^2",
        r"n!^2 \geq n^n",
        "5!^2 = 14400",
        "(n+1)!^2",
        "The answer is three.",
        "<answer>",
        "",
        "hello you",
        "1" * 200,
    ],
)
def test_unreadable_references(truth: str):
    assert not math.parseable(truth)
