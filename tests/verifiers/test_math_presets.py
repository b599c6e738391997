"""Which box the mathematics verifier reads under each preset, and how references are stored and accepted."""

import json

import pytest

from infuser_core.errors import ConfigError, DocumentError
from infuser_core.schemas import Question, Verdict
from infuser_core.verifiers import math

CORRECT, WRONG, NO_ANSWER = Verdict.CORRECT, Verdict.WRONG, Verdict.NO_ANSWER


def question(answer: str, *, text: str = "?", **grading: object) -> Question:
    return Question(
        question_id="q", text=text, choices=[], answer=answer, verifier="math", domain="", subdomain="",
        document_id="", rollout_id="", reasoning="", grading=json.dumps(grading) if grading else "",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("response", "paper", "official", "last"),
    [
        (r"\boxed{12} no, \boxed{24}", WRONG, CORRECT, CORRECT),
        (r"\boxed{24} or rather \boxed{", CORRECT, NO_ANSWER, CORRECT),
        (r"\boxed{24}", CORRECT, CORRECT, CORRECT),
        (r"\boxed{\frac{48}{2}}", CORRECT, CORRECT, CORRECT),
        ("It is 24.", NO_ANSWER, NO_ANSWER, NO_ANSWER),
        ("", NO_ANSWER, NO_ANSWER, NO_ANSWER),
    ],
)
def test_the_preset_chooses_the_box(response: str, paper: Verdict, official: Verdict, last: Verdict):
    presets = ("paper", "official", "strict-last")
    found = [math.check(response, question("24"), preset=preset).verdict for preset in presets]
    assert found == [paper, official, last]


def test_an_unknown_preset_is_an_error():
    with pytest.raises(ConfigError, match="lucky"):
        math.check(r"\boxed{1}", question("1"), preset="lucky")


@pytest.mark.parametrize(
    ("response", "answer", "verdict"),
    [
        (r"\boxed{42}", "42", CORRECT),
        (r"\boxed{12}...\boxed{24}", "24", CORRECT),
        (r"\boxed{24}...\boxed{", "24", CORRECT),
        (r"Final Answer: The final answer is $-\frac{2}{3}$. I hope it is correct.", r"-\frac{2}{3}", CORRECT),
        ("ANSWER: $24$", "24", CORRECT),
        (r"Final answer: \boxed{2/182}.", "1/91", CORRECT),
        (r"\boxed{hello world}", "hello world", CORRECT),
        (r"\boxed{hello}", "world", WRONG),
        ("no phrase either", "24", NO_ANSWER),
        ("", "24", NO_ANSWER),
    ],
)
def test_official_math500_reads_phrases_too(response: str, answer: str, verdict: Verdict):
    assert math.check(response, question(answer, route="math500"), preset="official").verdict == verdict
    if "boxed" not in response:
        assert math.check(response, question(answer, route="math500"), preset="paper").verdict == NO_ANSWER


@pytest.mark.parametrize(("answer", "reference"), [("x=42=43", "43"), (r"[-\infty,0]", r"(-\infty,0]")])
def test_official_keeps_the_holes_that_the_others_close(answer: str, reference: str):
    response = rf"\boxed{{{answer}}}"
    assert math.check(response, question(reference), preset="official").verdict == CORRECT
    assert math.check(response, question(reference), preset="paper").verdict == WRONG


@pytest.mark.parametrize(
    ("answer", "reference", "verdict"),
    [
        ("10%", "0.1", CORRECT), ("10%", "10", WRONG), ("62.5%", "0.625", CORRECT), ("0.1", "10", WRONG),
        ("10", r"10\%", CORRECT), (r"1000\%", r"10\%", WRONG), ("1000%", "10", CORRECT), ("100%", "1", CORRECT),
    ],
)  # fmt: skip
def test_a_percent_sign_has_one_meaning_per_reference(answer: str, reference: str, verdict: Verdict):
    assert math.check(rf"\boxed{{{answer}}}", question(reference)).verdict == verdict


@pytest.mark.parametrize(
    "text", ["What percentage of them is red?", "By how much percent did it rise? Find the percent."]
)
def test_a_question_for_a_percentage_counts_in_percent(text: str):
    assert math.check(r"\boxed{10\%}", question("10", text=text)).verdict == CORRECT
    assert math.check(r"\boxed{0.1}", question("10", text=text)).verdict == WRONG


@pytest.mark.parametrize(
    ("answer", "reference", "verdict"),
    [
        ("0.00001", "0", CORRECT), ("0.00005", "0", CORRECT), ("0.001", "0", WRONG), ("1", "0", WRONG),
        ("100.005", "100", CORRECT), ("100.02", "100", WRONG), ("[0,1.00001]", "[0,1]", CORRECT), ("43", "42", WRONG),
        ("1000001", "1000000", WRONG), (r"x \approx 1.41421", r"\sqrt{2}", CORRECT),
        (r"\approx 1.2", r"\sqrt{2}", WRONG),
    ],
)  # fmt: skip
def test_olympiad_decimals_have_a_relative_tolerance_and_whole_numbers_none(
    answer: str, reference: str, verdict: Verdict
):
    response = rf"\boxed{{{answer}}}"
    assert math.check(response, question(reference, route="olympiadbench_math")).verdict == verdict
    exact = math.check(response, question(reference)).verdict
    assert exact == (verdict if verdict == WRONG else WRONG)


def test_tolerances_belong_to_their_parts():
    asked = question("1.5, 20, 3", multiple=True, tolerance="0.1,,1")
    verdicts = [
        math.check(rf"\boxed{{{text}}}", asked).verdict for text in ("20, 4, 1.6", "20.5, 3, 1.5", "20, 5, 1.5")
    ]
    assert verdicts == [CORRECT, WRONG, WRONG]


def test_a_tolerance_that_is_no_number_is_an_error():
    with pytest.raises(DocumentError, match="small"):
        math.check(r"\boxed{1}", question("2", tolerance="small"))


@pytest.mark.parametrize(
    ("answer", "unit", "reference", "verdict"),
    [
        ("42 kg", "kg", "42", CORRECT), ("42 g", "kg", "42", WRONG), ("42000 g", "kg", "42", CORRECT),
        (r"2mg", "N", "2mg", CORRECT), (r"2 g m", "N", "2mg", CORRECT), ("2", "N", "2mg", WRONG),
        (r"3.0 \times 10^{8} \mathrm{~m/s}", r"$\mathrm{m/s}$", r"3 \times 10^{8}", CORRECT),
        (r"3.0 \times 10^{5} \mathrm{~km/s}", r"$\mathrm{m/s}$", r"3 \times 10^{8}", CORRECT),
        (r"1.5 \mathrm{~kg}", "m", "1.5", WRONG), ("60", "degrees", "60", CORRECT),
        (r"\pi/3", "degrees", "60", CORRECT),
    ],
)  # fmt: skip
def test_declared_units(answer: str, unit: str, reference: str, verdict: Verdict):
    assert math.check(rf"\boxed{{{answer}}}", question(reference, unit=unit)).verdict == verdict


def test_lists_follow_their_grading():
    assert math.check(r"\boxed{2, 1}", question("1; 2", multiple=True)).verdict == CORRECT
    assert math.check(r"\boxed{1; 2}", question("1, 2", multiple=True)).verdict == CORRECT
    assert math.check(r"\boxed{1}", question("1; 2", multiple=True)).verdict == WRONG
    assert math.check(r"\boxed{2, 1}", question("1, 2", answer_type="tuple")).verdict == WRONG
    assert math.check(r"\boxed{3,000}", question("3000")).verdict == CORRECT
    assert math.check(r"\boxed{3,000}", question("3,000", multiple=True)).verdict == CORRECT


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
