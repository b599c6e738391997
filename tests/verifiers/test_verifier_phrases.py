"""Answers that are announced by a phrase and stand in no box: preset `phrase`."""

import pytest

from infuser_core.schemas import Question, Verdict
from infuser_core.verifiers import choice, integer, math
from infuser_core.verifiers.parts.extract import announced_text


def question(verifier: str, answer: str, *, choices: int = 0) -> Question:
    return Question(
        question_id="q", text="?", choices=["x"] * choices, answer=answer, verifier=verifier, domain="", subdomain="",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("response", "letter"),
    [
        ("so the answer is (C).", "C"), ("**Final Answer:** B", "B"), ("**Answer**: C) the third", "C"),
        ("Answer: **D**", "D"), ("the correct answer is option (e)", "E"), ("The answer is:\n\nB", "B"),
        ("The answer is (A). No: the answer is (B).", "B"), (r"the answer is \text{(B)}", "B"),
        ("the answer is $C$", "C"), ("the answer is C because", "C"), (r"\boxed{D}. The answer is (A).", "D"),
        (r"it is \boxed{17}, so the answer is (F).", "F"),
        ("The answer is closest to 3", None), ("the answer is 100 degrees F", None), ("the answer is incorrect", None),
        ("The answer is A natural number", None), ("the answer is not (A)", None), ("the answer is (A, C)", None),
        ("the answers are (A)", None), ("answer is a", None),
    ],
)  # fmt: skip
def test_the_last_phrase_that_names_a_letter_counts(response: str, letter: str | None):
    found = choice.check(response, question("choice", letter or "A", choices=10), preset="phrase")
    assert (found.verdict, found.extracted) == (Verdict.CORRECT if letter else Verdict.NO_ANSWER, letter)


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        ("The answer is 42.", "42"), ("Final answer: $x^2$.", "x^2"), ("the answer is **3.5** apples", "3.5"),
        ("The answer is 1,250.", "1250"), ("The answer is 1. Or rather, the answer is 2.", "2"),
        (r"\boxed{7} and the answer is 8", "7"), (r"The answer is $\$5$.", "5"), (r"The answer is $$\$5$$", r"\$5"),
        (r"The answer is **$\$1,234.50$**.", "1234.5"), (r"The answer is $x = \$5$.", "5"),
        (r"It is \$5. Answer: \$6.", "6"), ("The answer is $5.", "5"), ("Answer: $5 dollars", r"\$5"),
        ("Answer: $ 5 $", "5"), (r"The answer is $\$5$.", r"5\text{ dollars}"),
        (r"The answer is $\{1,2\}$.", r"\{1,2\}"),
    ],
)  # fmt: skip
def test_other_answers_are_the_formula_or_the_rest_of_the_sentence(response: str, answer: str):
    assert math.check(response, question("math", answer), preset="phrase").verdict == Verdict.CORRECT
    assert math.check("no " + response.split("nswer")[0], question("math", "x"), preset="phrase").verdict != "correct"


def test_other_presets_read_no_phrase():
    for preset in ("paper", "strict-last"):
        assert choice.check("the answer is (C).", question("choice", "C"), preset=preset).verdict == Verdict.NO_ANSWER
    assert integer.check("the answer is 42.", question("integer", "42"), preset="phrase").verdict == Verdict.CORRECT


@pytest.mark.parametrize(
    "text",
    [
        "the answer is " * 50_000,
        "answer: **" * 50_000,
        r"answer is $\$" * 20_000,
        "answer is (" * 50_000,
        "*" * 500_000,
    ],
)
def test_no_text_takes_long(text: str):
    assert choice.check(text, question("choice", "C"), preset="phrase").verdict == Verdict.NO_ANSWER
    assert len(announced_text(text) or "") <= 513


@pytest.mark.parametrize(
    ("written", "answer", "verdict"),
    [
        (r"\displaystyle 204", "204", Verdict.CORRECT), ("m+n = 42", "42", Verdict.CORRECT),
        (r"42 \text{ minutes}", "42", Verdict.CORRECT), ("41=42", "42", Verdict.WRONG),
        ("m+n=41+1=42", "42", Verdict.WRONG), (r"42\text{ million}", "42", Verdict.WRONG),
        ("42.7", "42", Verdict.WRONG),
    ],
)  # fmt: skip
def test_an_integer_may_stand_beside_a_name_or_a_unit(written: str, answer: str, verdict: Verdict):
    for preset in ("paper", "strict-last"):
        assert integer.check(rf"\boxed{{{written}}}", question("integer", answer), preset=preset).verdict == verdict


@pytest.mark.parametrize("written", [r"\textbf{(B)}\ 12", r"\text{B. }12", r"\mathrm{(B)}~12"])
def test_a_letter_that_is_set_in_words_is_read_with_its_text(written: str):
    assert (
        choice.check(rf"\boxed{{{written}}}", question("choice", "B", choices=5), preset="strict-last").extracted == "B"
    )


def test_a_box_without_braces_holds_the_number_or_letter_behind_it():
    assert math.check(r"so \boxed 7.", question("math", "7")).verdict == Verdict.CORRECT
    assert math.check(r"so \boxed 204 it is", question("math", "2")).verdict == Verdict.WRONG
    assert choice.check(r"so \boxed B", question("choice", "B", choices=4)).verdict == Verdict.CORRECT
    assert choice.check(r"put it in a \boxed Answer", question("choice", "A", choices=4)).verdict == Verdict.NO_ANSWER
