"""Routes without documents: questions from what the generator knows, and programs that are run for their answer."""

import json

import pytest

from infuser_core.config.run import QuestionSettings
from infuser_core.cotrain.phases.generate_questions import route_digest
from infuser_core.cotrain.phases.parsing import Malformed
from infuser_core.cotrain.route import find_route
from infuser_core.schemas import Document, Question

BLANK = Document(
    document_id="blank-1", source_id="blank", header_path="", start=0, end=0, text="", num_tokens=0, domain="",
    prompt_type="deduction",
)  # fmt: skip


def read(route: str, text: str) -> Question | Malformed:
    reader = find_route(route).read
    assert reader is not None
    return reader(text, BLANK, "0/blank-1/0", QuestionSettings())


@pytest.mark.parametrize("route", ["challenge", "deduction", "abduction", "induction"])
def test_neither_needs_a_document(route: str):
    assert not find_route(route).needs_document
    assert find_route(route).template


def test_a_challenge_is_a_question_like_any_other():
    written = {"question_text": "Which?", "choices": ["a", "b", "c", "d"], "ground_truth": "c"}
    asked = read("challenge", json.dumps(written))
    assert isinstance(asked, Question)
    assert asked.choices["ABCD".index(asked.answer)] == "c"
    assert (asked.document_id, asked.rollout_id, asked.verifier) == ("blank-1", "0/blank-1/0", "choice")
    assert read("challenge", "{}") == read("mcq", "{}")


def test_the_function_runs_for_its_value_and_not_for_the_writers():
    written = {"program": "def f(x):\n    return x * 2 % 7", "arguments": "6", "expected_output": "4"}
    asked = read("deduction", f"<think>{{}}</think> Here: {json.dumps(written)}")
    assert isinstance(asked, Question)
    assert asked.answer == "5"
    assert written["program"] in asked.text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty_response"),
        ("<think>x</think> ", "no_json_content"),
        ('◁think▷{"program": "def f(): return 1"}', "no_json_content"),
        ("print(1)", "no_json_object"),
        ('{"program": ""}', "missing_required_fields"),
        ('{"program": 7}', "missing_required_fields"),
        ('{"program": "def f(): return 1"', "truncated_json"),
        ('{"program": "def f(): return 1"}', "arguments_are_no_literals"),
        ("{1: 2}", "invalid_json"),
    ],
)
def test_texts_without_a_program_say_why(text: str, reason: str):
    assert read("deduction", text) == Malformed(reason=reason)


def test_the_same_text_is_always_the_same_question():
    text = json.dumps({"program": "def f(x): return sorted({3, 1, x})", "arguments": "2"})
    assert read("deduction", text) == read("deduction", text)


def test_a_routes_later_version_is_another_key():
    assert route_digest("deduction", "nano-wide").endswith("/2")
    assert "/" not in route_digest("challenge", "nano-wide")
