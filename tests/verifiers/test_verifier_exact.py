"""Short text answers: equal text, or equal plain numbers."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from verifier_cases import CORRECT, NO_ANSWER, UNVERIFIED, WRONG, question

from infuser_core.verifiers import exact
from infuser_core.verifiers.parts.grading import Reason


@pytest.mark.parametrize(
    ("found", "reference", "verdict", "reason"),
    [
        ("Proved", "proved", CORRECT, Reason.TEXT),
        ("two  words", "Two words", CORRECT, Reason.TEXT),
        (r"\text{no, unknown, no}", "no, unknown, no", CORRECT, Reason.TEXT),
        ("42.0", "42", CORRECT, Reason.NUMBER),
        ("+.5", "0.50", CORRECT, Reason.NUMBER),
        ("-1,234,567.50", "-1234567.5", CORRECT, Reason.NUMBER),
        ("1e3", "1,000", CORRECT, Reason.NUMBER),
        ("1,000,5", "10005", WRONG, Reason.OTHER_TEXT),
        ("0,100", "100", WRONG, Reason.OTHER_TEXT),
        ("1, 000", "1000", WRONG, Reason.OTHER_TEXT),
        ("1_000", "1000", WRONG, Reason.OTHER_TEXT),
        ("\u0664\u0662", "42", WRONG, Reason.OTHER_TEXT),
        ("1e999", "5", WRONG, Reason.OTHER_TEXT),
        ("nan", "5", WRONG, Reason.OTHER_TEXT),
        ("infinity", "inf", WRONG, Reason.OTHER_TEXT),
    ],
)
def test_equal_text_or_equal_numbers(found: str, reference: str, verdict: str, reason: Reason):
    for preset in ("paper", "strict-last"):
        finding = exact.check(rf"\boxed{{{found}}}", question(reference), preset=preset)
        assert (finding.verdict, finding.reason) == (verdict, reason)


@pytest.mark.parametrize(
    ("preset", "first", "cut_off"),
    [("paper", CORRECT, CORRECT), ("strict-last", WRONG, CORRECT), ("official", WRONG, NO_ANSWER)],
)
def test_which_box_counts_is_the_presets(preset: str, first: str, cut_off: str):
    assert exact.check(r"\boxed{yes} \boxed{no}", question("yes"), preset=preset).verdict == first
    assert exact.check(r"\boxed{yes} \boxed{no", question("yes"), preset=preset).verdict == cut_off


@pytest.mark.parametrize(
    ("found", "reference", "verdict"),
    [(" Yes ", "yes", CORRECT), ("1e2", "100", CORRECT), ("1,000", "1000", WRONG), ("1e400", "5", UNVERIFIED)],
)
def test_official_compares_floats(found: str, reference: str, verdict: str):
    assert exact.check(rf"\boxed{{{found}}}", question(reference), preset="official").verdict == verdict


@given(st.integers(-(10**30), 10**30))
def test_thousands_separators_do_not_change_a_number(number: int):
    assert exact.number(f"{number:,}") == exact.number(str(number)) == Fraction(number)


@given(st.text(max_size=12), st.text(max_size=12))
def test_equality_has_no_direction(left: str, right: str):
    assert exact.same(left, left)
    assert exact.same(left, right) == exact.same(right, left)
