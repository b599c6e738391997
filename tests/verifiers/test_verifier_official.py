"""Preset `official`: the authors' readers, chosen by the route of the question and by nothing else."""

import pytest
from verifier_cases import CORRECT, NO_ANSWER, WRONG, question

from infuser_core.verifiers import choice
from infuser_core.verifiers.parts.grading import Reason

LETTERS = [
    # response, general, mmlu_pro, medqa
    ("The answer is (c).", None, "C", "C"),
    ("Answer: B, no: Answer: D", None, "B", "B"),
    (r"The answer is A. \boxed{B}", "B", "A", "B"),
    ("Options E and J.", None, "J", None),
    ("we take a C", None, "C", "C"),
    (r"\boxed{d}", "D", None, "D"),
    (r"\boxed{} so A", None, "A", "A"),
]


@pytest.mark.parametrize(("response", "general", "mmlu_pro", "medqa"), LETTERS)
def test_the_route_chooses_the_reader(response: str, general: str | None, mmlu_pro: str | None, medqa: str | None):
    for route, letter in (("", general), ("gpqa", general), ("mmlu_pro", mmlu_pro), ("medqa", medqa)):
        found = choice.check(response, question(letter or "A", route=route), preset="official")
        assert (found.verdict, found.extracted) == (CORRECT if letter else NO_ANSWER, letter)


@pytest.mark.parametrize("route", ["mmlu_pro", "medqa"])
def test_a_route_changes_no_other_preset(route: str):
    for preset in ("paper", "strict-last"):
        assert choice.check("The answer is A.", question("A", route=route), preset=preset).verdict == NO_ANSWER
        assert choice.check(r"The answer is A. \boxed{B}", question("B", route=route), preset=preset).verdict == CORRECT


def test_the_rule_that_read_a_letter_is_named():
    def reason(response: str, route: str = "") -> str:
        return choice.check(response, question("A", route=route), preset="official").reason

    assert reason(r"\boxed{Always}") == Reason.FIRST_CHARACTER
    assert reason(r"\boxed{(A)}") == Reason.WHOLE_BOX
    assert reason("answer is A", "medqa") == Reason.PHRASE
    assert reason("so A", "medqa") == Reason.LONE_LETTER
    assert (reason("-"), reason("-", "medqa")) == (Reason.NO_BOX, Reason.NO_PHRASE)


def test_choices_do_not_bound_the_authors_letters():
    assert choice.check(r"\boxed{Z}", question("Z", choices=4), preset="official").verdict == CORRECT
    assert choice.check(r"\boxed{Z}", question("Z", choices=4)).verdict == WRONG
