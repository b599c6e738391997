"""A document's route is a module found by name: what the generator is asked, and what becomes of its text."""

import json

import pytest

from infuser_core.config.run import QuestionSettings
from infuser_core.cotrain.phases.parsing import Malformed
from infuser_core.cotrain.route import find_route
from infuser_core.plugins import ROUTES
from infuser_core.schemas import Document, Question

RULES = QuestionSettings(min_choices=2, choice_order="as_written")
CHOSEN = json.dumps({"question_text": "6 * 7?", "choices": ["41", "42"], "ground_truth": "42"})
OPEN = json.dumps({"question_text": "What is half of one?", "ground_truth": "\\frac{1}{2}"})


def document() -> Document:
    return Document(
        document_id="d", source_id="s", header_path="", start=0, end=1, text="t", num_tokens=1, domain="Mathematics",
        prompt_type="mcq",
    )  # fmt: skip


def read(name: str, text: str) -> Question | Malformed:
    route = find_route(name)
    assert route.read is not None
    return route.read(text, document(), "0/d/1", RULES)


@pytest.mark.parametrize("name", ROUTES.names())
def test_a_route_writes_by_a_template_or_gives_what_a_row_carries(name: str):
    route = find_route(name)
    assert route.name == name
    assert bool(route.template) == (route.read is not None) == (route.carry is None)


def test_a_text_with_choices_becomes_a_question_with_a_letter():
    question = read("mcq", CHOSEN)
    assert isinstance(question, Question)
    assert (question.answer, question.verifier, question.choices) == ("B", "choice", ["41", "42"])
    assert (question.domain, question.document_id, question.rollout_id) == ("Mathematics", "d", "0/d/1")


def test_a_free_form_text_becomes_a_problem_with_a_value():
    question = read("free_form", OPEN)
    assert isinstance(question, Question)
    assert (question.answer, question.verifier, question.choices) == ("\\frac{1}{2}", "math", [])


@pytest.mark.parametrize(
    ("route", "text", "reason"),
    [
        ("mcq", OPEN, "missing_required_fields"),
        ("free_form", json.dumps({"question_text": "Why?", "ground_truth": ""}), "invalid_ground_truth"),
        ("free_form", "", "empty_response"),
    ],
)
def test_what_is_no_question_of_the_route_keeps_its_reason(route: str, text: str, reason: str):
    assert read(route, text) == Malformed(reason=reason)


def test_a_given_problem_keeps_its_answer_and_its_verifier():
    problem = Question(
        question_id="aime-1", text="6 * 7?", choices=[], answer="42", verifier="integer", domain="Math",
        subdomain="", document_id="row", rollout_id="", reasoning="", grading='{"route": "aime"}',
    )  # fmt: skip
    given = find_route("direct").carry
    assert given is not None
    made = given(problem, "3/row/0-ab")
    assert (made.question_id, made.document_id, made.rollout_id) == ("3/row/0-ab", "row", "")
    assert (made.answer, made.verifier, made.grading) == ("42", "integer", problem.grading)
