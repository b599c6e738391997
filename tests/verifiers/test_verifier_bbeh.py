"""BIG-Bench Extra Hard: a fuzzy match whose every rule has a name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from verifier_cases import CORRECT, NO_ANSWER, UNVERIFIED, WRONG, question

from infuser_core.verifiers import bbeh
from infuser_core.verifiers.parts.grading import Reason

MATCHES = [
    # found, reference, rule; None where none holds
    ("Unknown", "unknown", Reason.TEXT),
    (r"\text{unknown}", "unknown", Reason.TEXT),
    (r"$\mathbf{unknown}$", "unknown", Reason.TEXT),
    ("**unknown**", "unknown", Reason.TEXT),
    ("unknown.", "unknown", Reason.TEXT),
    ("unknown\nbecause nothing is said", "unknown", Reason.TEXT),
    ("no, Unknown, yes", "no,unknown,yes", Reason.TEXT),
    ("25.00", "25", Reason.NUMBER),
    ("1e2", "100", Reason.NUMBER),
    ("2, 345", "2345", None),
    ("2,345", "2345", None),
    ("(K)", "K", Reason.PARENTHESES),
    ("k", "(K)", Reason.PARENTHESES),
    ("(12)", "12", None),
    ("K) none", "K", None),
    ("'alpha'", "alpha", Reason.QUOTES),
    ('alpha, "beta"', "'alpha', beta", Reason.QUOTES),
    ("[2, 3]", "2,3", Reason.BRACKETS),
    ("unknown", "[unknown]", Reason.BRACKETS),
    ("(2, 3)", "2,3", None),
    ("unknown?", "unknown", Reason.QUESTION_MARK),
    ("unknown", "unknown?", Reason.QUESTION_MARK),
    ("'[unknown]'", "unknown", None),
    ("nan", "0", None),
    ("nan", "nan", Reason.TEXT),
    ("infinity", "inf", None),
    ("disproved", "proved", None),
    ("''", "alpha", None),
    ("because\nunknown", "unknown", None),
]


@pytest.mark.parametrize(("found", "reference", "rule"), MATCHES)
def test_the_first_rule_that_holds_decides(found: str, reference: str, rule: Reason | None):
    for preset in ("paper", "strict-last"):
        finding = bbeh.check(rf"\boxed{{{found}}}", question(reference), preset=preset)
        expected = (WRONG, Reason.OTHER_TEXT) if rule is None else (CORRECT, rule)
        assert (finding.verdict, finding.reason) == expected


def test_words_that_python_reads_as_numbers_are_words_except_for_official():
    assert bbeh.check(r"\boxed{infinity}", question("inf")).verdict == WRONG
    assert bbeh.check(r"\boxed{infinity}", question("inf"), preset="official").verdict == CORRECT


@pytest.mark.parametrize("reference", ["", " ", "**", "."])
def test_an_empty_reference_cannot_be_compared(reference: str):
    finding = bbeh.check(r"\boxed{x}", question(reference))
    assert (finding.verdict, finding.reason) == (UNVERIFIED, Reason.EMPTY_REFERENCE)


def test_the_box_alone_is_read_except_by_official():
    response = "Final Answer: proved"
    assert bbeh.check(response, question("proved")).verdict == NO_ANSWER
    assert bbeh.check(response, question("proved"), preset="strict-last").verdict == NO_ANSWER
    assert bbeh.check(response, question("proved"), preset="official").verdict == CORRECT
    assert bbeh.check("nothing", question("proved"), preset="official").reason == Reason.NO_PHRASE


@pytest.mark.parametrize(("preset", "verdict"), [("paper", CORRECT), ("strict-last", WRONG), ("official", WRONG)])
def test_which_box_counts_is_the_presets(preset: str, verdict: str):
    assert bbeh.check(r"\boxed{yes} \boxed{no}", question("yes"), preset=preset).verdict == verdict


@given(st.text(alphabet="aAbB01.,()[]'\"? *", max_size=10), st.text(alphabet="aAbB01.,()[]'\"? *", max_size=10))
def test_the_match_has_no_direction(left: str, right: str):
    assert bbeh.agreement(left, right) == bbeh.agreement(right, left)
    assert bbeh.agreement(left, left) == Reason.TEXT
