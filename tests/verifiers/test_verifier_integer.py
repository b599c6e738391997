"""Competition integers: three digits, leading zeros and zero decimals, and nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from verifier_cases import CORRECT, NO_ANSWER, UNVERIFIED, WRONG, question

from infuser_core.verifiers import integer
from infuser_core.verifiers.parts.grading import Reason


@pytest.mark.parametrize(
    ("found", "reference", "verdict"),
    [
        (r"\text{336}", r"336^\circ", CORRECT),
        (r"336^{ \circ }", "336", CORRECT),
        ("336°", r"336^{\circ}", CORRECT),
        ("$42$", "042", CORRECT),
        (r"42\,", "42", CORRECT),
        ("000", "0", CORRECT),
        ("42.00", "42", CORRECT),
        ("1042", "42", WRONG),
        ("-42", "42", WRONG),
        ("42.", "42", WRONG),
        ("n = 42", "42", WRONG),
        ("42 or 43", "42", WRONG),
        ("\u0664\u0662", "42", WRONG),
    ],
)
def test_the_same_integer(found: str, reference: str, verdict: str):
    for preset in ("paper", "strict-last"):
        finding = integer.check(rf"\boxed{{{found}}}", question(reference), preset=preset)
        assert (finding.verdict, finding.extracted, finding.reason) == (verdict, unwrapped(found), Reason.INTEGER)


def unwrapped(found: str) -> str:
    return found.removeprefix(r"\text{").removesuffix("}") if found.startswith(r"\text") else found


@given(st.integers(0, 999), st.integers(0, 999), st.integers(0, 4), st.integers(0, 3))
def test_leading_and_trailing_zeros_alone_do_not_matter(found: int, reference: int, zeros: int, decimals: int):
    text = "0" * zeros + str(found) + ("." + "0" * decimals if decimals else "")
    verdict = integer.check(rf"\boxed{{{text}}}", question(str(reference))).verdict
    assert verdict == (CORRECT if found == reference else WRONG)


@pytest.mark.parametrize("reference", ["x", "1000", "4.2", "", "-1"])
def test_a_reference_that_is_no_such_integer_cannot_be_compared(reference: str):
    finding = integer.check(r"\boxed{42}", question(reference))
    assert (finding.verdict, finding.reason) == (UNVERIFIED, Reason.NO_INTEGER)


@pytest.mark.parametrize(
    ("preset", "first", "cut_off"),
    [("paper", CORRECT, CORRECT), ("strict-last", WRONG, CORRECT), ("official", WRONG, NO_ANSWER)],
)
def test_which_box_counts_is_the_presets(preset: str, first: str, cut_off: str):
    assert integer.check(r"\boxed{42} \boxed{43}", question("42"), preset=preset).verdict == first
    assert integer.check(r"\boxed{42} \boxed{43", question("42"), preset=preset).verdict == cut_off


@pytest.mark.parametrize(
    ("found", "reference", "verdict"),
    [
        ("42.9", "42", CORRECT),
        (r"42^\circ", "42", CORRECT),
        (r"42\%", "42", CORRECT),
        ("1042", "1042", CORRECT),
        ("nan", "42", WRONG),
        ("1e400", "42", UNVERIFIED),
        ("42", "x", WRONG),
    ],
)
def test_official_cuts_decimals_off(found: str, reference: str, verdict: str):
    assert integer.check(rf"\boxed{{{found}}}", question(reference), preset="official").verdict == verdict
