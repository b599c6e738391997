r"""Observed behaviour of the authors' code, boxed answers: what preset `official` repeats, and where ours differ.

One row per observation. Where ours differ on purpose the row says so and the test asserts that they do.
"""

import pytest
from verifier_cases import CORRECT, NO_ANSWER, WRONG, question

from infuser_core.verifiers import choice, exact
from infuser_core.verifiers.parts import extract

BOXED = [
    # response, official: content of the last box
    (r"\boxed{42}", "42"),
    (r"\boxed{\text{disproved}}", r"\text{disproved}"),
    (r"\boxed{x^{2} + 1}", "x^{2} + 1"),
    (r"\boxed{\textbf{\text{Yes}}}", r"\textbf{\text{Yes}}"),
    (r"\boxed{A} then \boxed{B}", "B"),
    (r"\\boxed{hello}", "hello"),
    (r"\boxed {spaced}", "spaced"),
    (r"\boxed{}", None),
    ("no box", None),
    ("", None),
    (r"\boxed{unclosed", None),
    (r"\fbox{C}", None),
]


@pytest.mark.parametrize(("response", "content"), BOXED)
def test_the_last_box_is_kept(response: str, content: str | None):
    assert extract.boxed(response, preset="official") == content
    assert extract.boxed(response, preset="strict-last") == content


def test_the_paper_reads_the_first_of_two_boxes():
    assert extract.boxed(r"\boxed{A} then \boxed{B}", preset="paper") == "A"


def test_a_box_that_was_cut_off_hides_no_other():
    response = r"\boxed{A} ... \boxed{"
    assert extract.boxed(response, preset="official") is None
    assert [extract.boxed(response, preset=preset) for preset in ("paper", "strict-last")] == ["A", "A"]


WRAPPED = [
    (r"\text{X}", "X"),
    (r"\textbf{X}", "X"),
    (r"\textit{X}", "X"),
    (r"\mathrm{X}", "X"),
    (r"\operatorname{X}", "X"),
    (r"\textbf{\text{Yes}}", "Yes"),
    ("42", "42"),
    (r"answer is \text{x}", r"answer is \text{x}"),
    (r"\text{hello world}", "hello world"),
]


@pytest.mark.parametrize(("content", "bare"), WRAPPED)
def test_wrappers_that_span_the_content_are_kept_off(content: str, bare: str):
    assert extract.unwrap(content) == bare


NOT_A_LETTER = "-"
LETTERS = [
    # response, official, paper, strict-last; None: no answer, "-": wrong without a letter; differs: on purpose
    (r"\boxed{B}", "B", "B", "B", False),
    (r"\boxed{c}", "C", "C", "C", False),
    (r"\boxed{\text{B}}", "B", "B", "B", False),
    (r"\boxed{\textbf{A}}", "A", "A", "A", False),
    (r"$$\boxed{\text{C}}$$", "C", "C", "C", False),
    (r"\boxed{A} wait \boxed{D}", "D", "A", "D", False),
    ("no box", None, None, None, False),
    ("", None, None, None, False),
    (r"\boxed{42}", "42", NOT_A_LETTER, NOT_A_LETTER, False),
    (r"\boxed{(B)}", "(B)", "B", "B", True),
    (r"\boxed{\textbf{(B)}}", "(B)", "B", "B", True),
    (r"\boxed{\text{(C)}}", "(C)", "C", "C", True),
    (r"\boxed{B. Because}", "B", NOT_A_LETTER, "B", False),
    (r"\boxed{B) foo}", "B", NOT_A_LETTER, "B", False),
    (r"\boxed{$B$}", "$B$", "B", "B", True),
    (r"\boxed{<B>}", "<B>", "B", "B", True),
    (r"\boxed{\mathbf{C}}", "C", "C", "C", False),
    (r"\boxed{\boxed{C}}", "C", "C", "C", False),
    (r"\boxed{Because}", "B", NOT_A_LETTER, NOT_A_LETTER, True),
    (r"\boxed{None of the above}", "N", NOT_A_LETTER, NOT_A_LETTER, True),
    (r"\boxed{ABC}", "A", NOT_A_LETTER, NOT_A_LETTER, True),
    (r"\boxed{AB}", "A", NOT_A_LETTER, NOT_A_LETTER, True),
    (r"\boxed{A, C}", "A", NOT_A_LETTER, NOT_A_LETTER, True),
    (r"\boxed{B, C}", "B", NOT_A_LETTER, NOT_A_LETTER, True),
    (r"\boxed{Option C}", "O", NOT_A_LETTER, "C", True),
    (r"\boxed{Answer: B}", "A", NOT_A_LETTER, "B", True),
    (r"\boxed{A} ... \boxed{", None, "A", "A", True),
]


def letter(response: str, preset: str) -> str | None:
    """What a preset reads, None for no answer, "-" for a wrong one without a letter."""
    found = choice.check(response, question("-"), preset=preset)
    if found.verdict == NO_ANSWER:
        return None
    return NOT_A_LETTER if found.reason == "no single letter" else found.extracted


@pytest.mark.parametrize(("response", "official", "paper", "last", "differs"), LETTERS)
def test_the_letter_of_a_response(
    response: str, official: str | None, paper: str | None, last: str | None, differs: bool
):
    assert letter(response, "official") == official
    assert (letter(response, "paper"), letter(response, "strict-last")) == (paper, last)
    assert (official != last) or not differs


@pytest.mark.parametrize("preset", extract.PRESETS)
def test_a_box_without_a_letter_is_wrong_and_not_unanswered(preset: str):
    assert choice.check(r"\boxed{42}", question("A"), preset=preset).verdict == WRONG
    assert choice.check("42", question("A"), preset=preset).verdict == NO_ANSWER


TEXTS = [
    # content of the last box, what is compared
    ("42", "42"),
    ("proved", "proved"),
    (r"\text{proved}", "proved"),
    ("90, 2", "90, 2"),
    ("0,1,1", "0,1,1"),
    (r"\text{no, unknown, no}", "no, unknown, no"),
    (r"\text{B, B, B}", "B, B, B"),
    ("1 and 8", "1 and 8"),
]


@pytest.mark.parametrize("preset", ["official", "strict-last"])
@pytest.mark.parametrize(("content", "text"), TEXTS)
def test_free_form_text_comes_from_the_last_box(content: str, text: str, preset: str):
    finding = exact.check(rf"\boxed{{first}} then \boxed{{{content}}}", question(text), preset=preset)
    assert (finding.verdict, finding.extracted) == (CORRECT, text)


ROUTED = [
    # route, response, official, ours: the box alone, under both of our presets
    ("mmlu_pro", "So the answer is (D).", "D", None),
    ("mmlu_pro", "Answer: C", "C", None),
    ("mmlu_pro", "between A and B, final C", "C", None),
    ("mmlu_pro", "No valid choice here.", None, None),
    ("mmlu_pro", r"The answer is incorrect if so, hence \boxed{C}.", "I", "C"),
    ("mmlu_pro", r"the answer is a bit subtle. \boxed{D}", "A", "D"),
    ("mmlu_pro", r"the answer is $\boxed{E}$. I am sure", "I", "E"),
    ("mmlu_pro", "I think so", "I", None),
    ("mmlu_pro", "Answer: C\nNo, rather \\boxed{D}", "C", "D"),
    ("medqa", r"\boxed{C}", "C", "C"),
    ("medqa", "Answer: B", "B", None),
    ("medqa", "final answer is (D).", "D", None),
    ("medqa", "I considered A and C, but B", "B", None),
    ("medqa", "No valid choice here.", None, None),
    ("medqa", "It is a disease", "A", None),
    ("medqa", r"\boxed{(B)}", "(B)", "B"),
    ("medqa", "option E", None, None),
]


@pytest.mark.parametrize(("route", "response", "official", "ours"), ROUTED)
def test_phrases_answer_under_official_alone(route: str, response: str, official: str | None, ours: str | None):
    asked = question(ours or "A", choices=10 if route == "mmlu_pro" else 4, route=route)
    findings = {preset: choice.check(response, asked, preset=preset) for preset in extract.PRESETS}
    assert findings["official"].extracted == official
    for preset in ("paper", "strict-last"):
        assert findings[preset].extracted == ours
        assert findings[preset].verdict == (CORRECT if ours else NO_ANSWER)
    if official and ours and official != ours:
        assert findings["official"].verdict == WRONG
