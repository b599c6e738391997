"""Mathematical answers: equal text, exact numbers, and what math-verify makes of the rest."""

import pytest
from verifier_cases import CORRECT, UNVERIFIED, WRONG, question

from infuser_core.verifiers import math


@pytest.mark.parametrize(
    ("found", "reference", "verdict"),
    [
        ("42", "42", CORRECT), ("43", "42", WRONG), (r"\frac{1}{2}", "0.5", CORRECT),
        (r"\dfrac12", r"\frac{1}{2}", CORRECT),
        ("2/182", "1/91", CORRECT), ("x + 1", "1 + x", CORRECT), (r"\sqrt{3}-1", r"-1+\sqrt{3}", CORRECT),
        ("3,000", "3000", CORRECT), ("x=5", "5", CORRECT), ("42=43", "43", WRONG), (r"42 \to 43", "43", WRONG),
        ("hello world", "hello world", CORRECT), (r"50\%", r"\frac{50}{100}", CORRECT),
        ("0.333", r"\frac{1}{3}", WRONG),
        (r"(-\infty, 0]", r"(-\infty,0]", CORRECT), ("9^{99999999}", "5", UNVERIFIED),
        ("2^{2^{2^{99}}}", "5", UNVERIFIED),
        ("12345678!", "5", UNVERIFIED), ("(" * 300 + "1" + ")" * 300, "5", UNVERIFIED), ("1" * 9000, "5", UNVERIFIED),
        ("{" * 20 + "1" + "}" * 20, "5", WRONG), ("1/0", "5", WRONG),
    ],
)  # fmt: skip
def test_math(found: str, reference: str, verdict: str) -> None:
    assert math.check(rf"\boxed{{{found}}}", question(reference)).verdict == verdict


@pytest.mark.parametrize("truth", [r"127.32\%", "127.32%", "50%", r"100\% + 5\%"])
def test_canonical_answers_have_no_percent_sign(truth: str) -> None:
    assert "%" not in math.canonical(truth)
    assert math.parseable(truth)


@pytest.mark.parametrize(
    "truth",
    [r"(n!)^2", r"(n!)^2 \geq n^n", r"\frac{1}{2}", "10^{-8}", "n!", r"\sum_{k=1}^n k", "3", "x=1 or x=2"],
)
def test_readable_references_are_left_alone(truth: str) -> None:
    assert math.canonical(truth) == truth
    assert math.parseable(truth)


@pytest.mark.parametrize(
    "truth",
    ["n!^2", r"n!^2 \geq n^n", "5!^2 = 14400", "(n+1)!^2", "The answer is three.", "<answer>", "", "hello you"],
)
def test_unreadable_references(truth: str) -> None:
    assert not math.parseable(truth)
