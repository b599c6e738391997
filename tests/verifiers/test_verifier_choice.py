"""Multiple choice: one letter in the box, by rules that can be counted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from verifier_cases import CORRECT, NO_ANSWER, WRONG, question

from infuser_core.verifiers import choice
from infuser_core.verifiers.parts.grading import Reason

PLAIN, BRACKETED, TEXT, NAMED, NONE, BEYOND = (
    Reason.LETTER, Reason.BRACKETED_LETTER, Reason.LETTER_WITH_TEXT, Reason.NAMED_LETTER, Reason.NO_LETTER,
    Reason.BEYOND_CHOICES,
)  # fmt: skip

LETTERS = [
    # content of the box, letter, rule under `paper`, rule under `strict-last`
    ("B", "B", PLAIN, PLAIN),
    ("c", "C", PLAIN, PLAIN),
    ("C.", "C", PLAIN, PLAIN),
    ("$B$", "B", PLAIN, PLAIN),
    ("$$B$$", "B", PLAIN, PLAIN),
    (r"\text{B}", "B", PLAIN, PLAIN),
    (r"\text{B.}", "B", PLAIN, PLAIN),
    (r"$\mathbf{C}$.", "C", PLAIN, PLAIN),
    (r"\textbf{\text{A}}", "A", PLAIN, PLAIN),
    (r"\boxed{C}", "C", PLAIN, PLAIN),
    ("(B)", "B", BRACKETED, BRACKETED),
    ("[B]", "B", BRACKETED, BRACKETED),
    ("<B>", "B", BRACKETED, BRACKETED),
    ("(B).", "B", BRACKETED, BRACKETED),
    (r"\textbf{(B)}", "B", BRACKETED, BRACKETED),
    (r"(\textbf{B})", "B", BRACKETED, BRACKETED),
    ("B. Because it is so", "B", NONE, TEXT),
    ("B) foo", "B", NONE, TEXT),
    ("B)", "B", NONE, TEXT),
    ("D: 42", "D", NONE, TEXT),
    ("(B) 42", "B", NONE, TEXT),
    (r"\text{B. } f(x) = x", None, NONE, NONE),
    ("B. f(x) = x", "B", NONE, TEXT),
    ("B. 5 m. of wire", "B", NONE, TEXT),
    ("B. vitamin C", "B", NONE, TEXT),
    ("A) x + y", "A", NONE, TEXT),
    ("Option C", "C", NONE, NAMED),
    ("option (C)", "C", NONE, NAMED),
    ("Answer: B", "B", NONE, NAMED),
    ("Answer: B. Because", "B", NONE, NAMED),
    ("answer is (D)", "D", NONE, NAMED),
    ("Choice is: d", "D", NONE, NAMED),
    ("42", None, NONE, NONE),
    ("Because", None, NONE, NONE),
    ("None of the above", None, NONE, NONE),
    ("ABC", None, NONE, NONE),
    ("AB", None, NONE, NONE),
    ("A, C", None, NONE, NONE),
    ("A and B", None, NONE, NONE),
    ("A) or B)", None, NONE, NONE),
    ("(A)(B)", None, NONE, NONE),
    ("A. B", None, NONE, NONE),
    ("A: B and C", None, NONE, NONE),
    ("Option A or B", None, NONE, NONE),
    ("Answer: A. B", None, NONE, NONE),
    ("((B))", None, NONE, NONE),
    ("(B", None, NONE, NONE),
    ("<correct letter>", None, NONE, NONE),
    ("optional", None, NONE, NONE),
    ("Options: A", None, NONE, NONE),
    ("\u0131", None, NONE, NONE),
    ("\uff22", None, NONE, NONE),
    ("E", "E", BEYOND, BEYOND),
    ("(Z)", "Z", BEYOND, BEYOND),
    ("E. none", "E", NONE, BEYOND),
]


@pytest.mark.parametrize(("box", "letter", "paper", "last"), LETTERS)
def test_the_letter_and_the_rule_that_read_it(box: str, letter: str | None, paper: Reason, last: Reason):
    response = rf"so $$\boxed{{{box}}}$$."
    for preset, reason in (("paper", paper), ("strict-last", last)):
        found = choice.check(response, question(letter or "A"), preset=preset)
        assert found.reason == reason
        assert found.verdict == (WRONG if reason in (NONE, BEYOND) else CORRECT)
        assert found.extracted == (box if reason == NONE else letter)


RESPONSES = [
    # response, reference, paper, strict-last
    (r"\boxed{A} wait \boxed{D}", "D", WRONG, CORRECT),
    (r"\boxed{A} wait \boxed{D}", "A", CORRECT, WRONG),
    (r"\boxed{<correct choice letter>} \boxed{D}", "D", WRONG, CORRECT),
    (r"\boxed{D} \boxed{unfinished", "D", CORRECT, CORRECT),
    (r"\boxed{C}", "A", WRONG, WRONG),
    ("the answer is A", "A", NO_ANSWER, NO_ANSWER),
    ("", "A", NO_ANSWER, NO_ANSWER),
]


@pytest.mark.parametrize(("response", "answer", "paper", "last"), RESPONSES)
def test_the_first_box_counts_or_the_last(response: str, answer: str, paper: str, last: str):
    assert choice.check(response, question(answer)).verdict == paper
    assert choice.check(response, question(answer), preset="strict-last").verdict == last


def test_a_letter_needs_a_choice():
    assert choice.check(r"\boxed{J}", question("J", choices=10)).verdict == CORRECT
    assert choice.check(r"\boxed{J}", question("J", choices=9)).verdict == WRONG


def test_every_letter_counts_where_the_choices_are_not_known():
    assert choice.check(r"\boxed{J}", question("J", choices=0)).verdict == CORRECT


@given(st.text(alphabet="ABab.():,$ or", max_size=10))
def test_what_paper_reads_strict_last_reads_as_well(content: str):
    response = rf"\boxed{{{content}}}"
    found = choice.check(response, question("B"))
    if found.verdict != NO_ANSWER and found.reason != NONE:
        assert choice.check(response, question("B"), preset="strict-last") == found


@given(st.text(alphabet="abcdABCD.():,$ orn", max_size=12))
def test_no_box_is_right_for_two_letters(content: str):
    for preset in ("paper", "strict-last"):
        verdicts = [choice.check(rf"\boxed{{{content}}}", question(letter), preset=preset).verdict for letter in "ABCD"]
        assert verdicts.count(CORRECT) <= 1
