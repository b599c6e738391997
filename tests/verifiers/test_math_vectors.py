"""Answers and references whose verdict is agreed: what other graders get right is kept, what they get wrong is not."""

import json

import pytest

from infuser_core.schemas import Question, Verdict
from infuser_core.verifiers import math

CORRECT, WRONG, UNVERIFIED = Verdict.CORRECT, Verdict.WRONG, Verdict.UNVERIFIED


def verdict(answer: str, reference: str, **grading: object) -> Verdict:
    question = Question(
        question_id="q", text="?", choices=[], answer=reference, verifier="math", domain="", subdomain="",
        document_id="", rollout_id="", reasoning="", grading=json.dumps(grading) if grading else "",
    )  # fmt: skip
    return math.check(rf"\boxed{{{answer}}}", question).verdict


@pytest.mark.parametrize(
    ("answer", "reference"),
    [
        ("42", "42"), ("1/91", "1/91"), ("2/182", "1/91"), ("sqrt(3) - 1", "sqrt(3) - 1"),
        (r"\sqrt{3}-1", "sqrt(3) - 1"),
        ("hello world", "hello world"), (r"-\frac{2}{3}", r"-\frac{2}{3}"), (r"\frac{1}{2}", "0.5"), ("x + 1", "1 + x"),
        ("1, 2", "1; 2"), ("2, 1", "1; 2"), ("1, (2, 3), 4", "4, 1, (2, 3)"), ("0", "0"), ("$42$", "42"),
        ("62.5%", "0.625"),
        ("12^{th}", "12"), (r"\dfrac{1}{2}", r"\frac12"), ("3,000", "3000"), ("x=5", "5"), ("5=x", "5"),
        ("10.50", "10.5"),
        ("100", "1e2"), (r"\{2, 1\}", r"\{1, 2\}"), (r"0.\overline{3}", r"\frac{1}{3}"), (r"\$18.90", "18.90"),
        (r"\text{Area} = 5", "5"), (r"f(3) = 5", "5"), (r"\text{June 20}", "June 20"), ("P(1+r)^2", "P+2Pr+Pr^2"),
        (r"5000\text{ mW}", r"5\text{ W}"), ("1A_{16}", "1A_{16}"), ("(1, 2)", "1, 2"), ("1, 2", "(1, 2)"),
        (r"1.23 \times 10^5", "1.23e5"), (r"e^{i\pi}", "-1"), ("x**1000", "x^{1000}"),
    ],
)  # fmt: skip
def test_kept(answer: str, reference: str):
    assert verdict(answer, reference) == CORRECT


@pytest.mark.parametrize(
    ("answer", "reference"),
    [
        ("41", "42"), ("hello", "world"), ("43", "42"), ("1", "1; 2"), ("100", "200"), ("abc", "42"), ("1", "0"),
        ("[0,1)", "[0,1]"), ("(2, 1)", "(1, 2)"), ("42=43", "43"), (r"42 \to 43", "43"), (r"\{3,4\}", "(3,4)"),
        (r"[-\infty,0]", r"(-\infty,0]"), ("0.333", r"\frac{1}{3}"), ("inf", "5"), ("nan", "5"), ("1/0", "5"),
        ("x", "0"),
        ("x", "x_1"), ("R", "R_2"), (r"5\text{ MW}", r"5\text{ mW}"), (r"3!\text{ kg}", r"3\text{ kg}"),
        (r"1 5\text{ kg}", r"1.5\text{ kg}"), (r"\text{anything but} = 5", "5"), (r"5\text{ tenths}", "5"),
        ("2xyz", "2"),
        ("2mg", "2g"), (r"5 \text{ mod } 7", "5"),
        ("x**1000", "x"), ("10%", "10"), ("100.02", "100"), ("0.1", "10"),
    ],
)  # fmt: skip
def test_refused(answer: str, reference: str):
    assert verdict(answer, reference) == WRONG


def test_a_list_without_brackets_is_no_interval():
    assert verdict("1, 2", "(1, 2)", answer_type="interval") == WRONG
    assert verdict("(1, 2)", "(1, 2)", answer_type="interval") == CORRECT


def test_a_reference_that_cannot_be_read_is_no_verdict_on_the_answer():
    assert verdict("42", r"\frac{}{") == UNVERIFIED
    assert verdict("42", r"\oint_\gamma") == UNVERIFIED
