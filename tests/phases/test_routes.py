"""Routes from a document to a question: multiple choice, functions, self-play."""

import json
from dataclasses import replace

import pytest
from places import CONFIGS

from infuser_core.config.overlays import load
from infuser_core.config.run import QuestionSettings
from infuser_core.cotrain.phases import generate_questions as phase
from infuser_core.cotrain.phases.generate_questions import route_digest
from infuser_core.cotrain.phases.parsing import Malformed
from infuser_core.cotrain.phases.parts.few_shot import draw_program, load_examples
from infuser_core.cotrain.route import find_route
from infuser_core.engines.fake import ByteTokenizer, ScriptedSampler
from infuser_core.plugins import ROUTES
from infuser_core.schemas import Document, Question, Verdict
from infuser_core.verifiers.parts.batch import find_verifier
from infuser_core.verifiers.parts.grading import grading_of

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


# The three tasks about Python functions: each is run before it is asked, and answers are judged by running


SOURCE = "def f(words, n):\n    return [w[::-1] for w in words if len(w) > n]"
BLANK = Document(
    document_id="b", source_id="blank", header_path="", start=0, end=0, text=SOURCE, num_tokens=0, domain="",
    prompt_type="",
)  # fmt: skip


def read_fields(route: str, **fields: object) -> Question | Malformed:
    reader = find_route(route).read
    assert reader is not None
    return reader(json.dumps(fields), BLANK, "0/b/0", QuestionSettings())


def verdict(asked: Question | Malformed, answer: str) -> Verdict:
    assert isinstance(asked, Question), asked
    return find_verifier(asked.verifier).check(f"\\boxed{{{answer}}}", asked).verdict


def test_deduction_asks_for_the_value_of_a_call():
    asked = read_fields("deduction", program=SOURCE, arguments="['abc', 'd'], 1")
    assert isinstance(asked, Question)
    assert asked.answer == "['cba']"
    assert SOURCE in asked.text
    assert "f(['abc', 'd'], 1)" in asked.text
    assert (verdict(asked, '["cba"]'), verdict(asked, "['abc']")) == (Verdict.CORRECT, Verdict.WRONG)


def test_abduction_takes_any_arguments_that_lead_to_the_value():
    asked = read_fields("abduction", program=SOURCE, arguments="['abc', 'd'], 1")
    assert isinstance(asked, Question)
    assert "['cba']" in asked.text
    assert "'d'" not in asked.text
    found = [verdict(asked, answer) for answer in ("['abc'], 2", "f(['abc', 'de'], 2)", "['abc'], 3", "1")]
    assert found == [Verdict.CORRECT, Verdict.CORRECT, Verdict.WRONG, Verdict.WRONG]


def test_induction_shows_half_of_the_examples_and_judges_by_the_others():
    inputs = ["['ab'], 1", "['ab'], 2", "['abc', 'x'], 0", "[], 0"]
    asked = read_fields("induction", inputs=inputs, message="Words.")
    assert isinstance(asked, Question)
    assert "f(['ab'], 1) == ['ba']" in asked.text
    assert "abc" not in asked.text
    assert SOURCE not in asked.text
    shown_alone = "def f(words, n):\n    return ['ba'] if n == 1 else []"
    fenced = "\n```python\n{}\n```\n"
    assert verdict(asked, fenced.format(SOURCE)) == Verdict.CORRECT
    assert verdict(asked, fenced.format(shown_alone)) == Verdict.WRONG


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"program": "def f(x):\n    return x / 0", "arguments": "1"}, "program_failed"),
        ({"program": "def g(x):\n    return x", "arguments": "1"}, "program_failed"),
        ({"program": "def f(x):\n    while True: pass", "arguments": "1"}, "program_failed"),
        ({"program": "import random\ndef f(x):\n    return random.random()", "arguments": "1"}, "program_not_determ"),
        ({"program": "n = [0]\ndef f(x):\n    n[0] += 1\n    return n[0]", "arguments": "1"}, "program_not_determ"),
        ({"program": "def f(x):\n    return lambda: x", "arguments": "1"}, "program_failed"),
        ({"program": "def f(x):\n    return x * 999", "arguments": "'a'"}, "value_is_no_literal"),
        ({"program": "def f(x):\n    pass", "arguments": "1"}, "value_is_no_literal"),
        ({"program": "def f(x):\n    return x", "arguments": "open('/etc/passwd')"}, "arguments_are_no_literals"),
        ({"program": "def f(x):\n    return x", "arguments": ""}, "arguments_are_no_literals"),
        ({"program": "def f(x):\n    return x", "arguments": 7}, "arguments_are_no_literals"),
        ({"arguments": "7"}, "missing_required_fields"),
    ],
)
def test_functions_that_are_no_question_say_why(fields: dict[str, object], reason: str):
    for route in ("deduction", "abduction"):
        found = read_fields(route, **fields)
        assert isinstance(found, Malformed)
        assert found.reason.startswith(reason)


@pytest.mark.parametrize(
    ("inputs", "reason"),
    [
        (["['a'], 1"] * 9, "too_few_examples"),
        (["['a'], 1", "x", "[], 1", "[], 2"], "arguments_are_no_literals"),
        (["['a'], 1", "3, 1", "[], 1", "[], 2"], "program_failed"),
        ("['a'], 1", "too_few_examples"),
    ],
)
def test_examples_that_are_no_question_say_why(inputs: object, reason: str):
    assert read_fields("induction", inputs=inputs) == Malformed(reason=reason)


OVERLAY = load(
    [CONFIGS / "nano-wide.yaml", CONFIGS / "baseline" / "absolute_zero.yaml"],
    ["prompts=paper", "cotrain.prompt_tokens=9999", "cotrain.group_size=2", "cotrain.generator_tokens=999"],
)
ROWS = [
    replace(BLANK, document_id=f"b{n}", text="", prompt_type=name)
    for n, name in enumerate(("deduction", "abduction", "induction"))
]
WRITTEN = {"program": SOURCE, "arguments": "['abc'], 1", "inputs": ["1", "2", "'a'", "[3]"], "message": "Same."}


def generated(earlier: list[Question], iteration: int) -> tuple[phase.GeneratedQuestions, dict[str, str]]:
    made = phase.generate_questions(
        ROWS,
        ScriptedSampler(reply=lambda prompt, seed: json.dumps(WRITTEN)),
        replace(phase.settings_of(OVERLAY), documents=3),
        checkpoint_id="c",
        seed=1,
        iteration=iteration,
        examples=load_examples(OVERLAY, earlier),
        earlier=earlier,
    )
    prompts = {row.group_id: ByteTokenizer().decode(row.prompt_token_ids) for row in made.rollouts}
    return made, prompts


def test_later_prompts_show_earlier_functions_and_induction_asks_about_one():
    made, prompts = generated([], 0)
    assert {row.verdict for row in made.rollouts} == {"valid"}
    assert "USED" not in prompts["b0"]
    assert "return x\n" in prompts["b2"], "the seed function"
    assert sum(bool(grading_of(row).program) for row in made.earlier) == 4, (
        "a function that is to be found is not shown"
    )

    _, later = generated(made.earlier, 1)
    assert later["b0"].count(SOURCE) == later["b1"].count(SOURCE) == 4, "six are asked for, and four are functions"
    assert "USED" in later["b0"]
    assert "USED" not in later["b2"] and "Answer:" not in later["b2"], "inputs are written for one function alone"
    assert SOURCE in later["b2"] or "return x\n" not in later["b2"]


def test_the_newest_questions_stay():
    earlier = generated([], 0)[0].earlier
    settings = replace(phase.settings_of(OVERLAY), examples={"earlier": 3}, documents=3)
    sampler = ScriptedSampler(reply=lambda prompt, seed: json.dumps(WRITTEN))
    again = phase.generate_questions(ROWS, sampler, settings, checkpoint_id="c", seed=1, iteration=1, earlier=earlier)
    assert again.earlier == again.questions[-3:]
    assert draw_program(None, "b2", seed=1, iteration=0).startswith("def f(x)")


# Routes without documents: questions from what the generator knows, and programs that are run for their answer


BLANK_PROMPT = Document(
    document_id="blank-1", source_id="blank", header_path="", start=0, end=0, text="", num_tokens=0, domain="",
    prompt_type="deduction",
)  # fmt: skip


def read_reply(route: str, text: str) -> Question | Malformed:
    reader = find_route(route).read
    assert reader is not None
    return reader(text, BLANK_PROMPT, "0/blank-1/0", QuestionSettings())


@pytest.mark.parametrize("route", ["challenge", "deduction", "abduction", "induction"])
def test_neither_needs_a_document(route: str):
    assert not find_route(route).needs_document
    assert find_route(route).template


def test_a_challenge_is_a_question_like_any_other():
    written = {"question_text": "Which?", "choices": ["a", "b", "c", "d"], "ground_truth": "c"}
    asked = read_reply("challenge", json.dumps(written))
    assert isinstance(asked, Question)
    assert asked.choices["ABCD".index(asked.answer)] == "c"
    assert (asked.document_id, asked.rollout_id, asked.verifier) == ("blank-1", "0/blank-1/0", "choice")
    assert read_reply("challenge", "{}") == read_reply("mcq", "{}")


def test_the_function_runs_for_its_value_and_not_for_the_writers():
    written = {"program": "def f(x):\n    return x * 2 % 7", "arguments": "6", "expected_output": "4"}
    asked = read_reply("deduction", f"<think>{{}}</think> Here: {json.dumps(written)}")
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
    assert read_reply("deduction", text) == Malformed(reason=reason)


def test_the_same_text_is_always_the_same_question():
    text = json.dumps({"program": "def f(x): return sorted({3, 1, x})", "arguments": "2"})
    assert read_reply("deduction", text) == read_reply("deduction", text)


def test_a_routes_later_version_is_another_key():
    assert route_digest("deduction", "nano-wide").endswith("/2")
    assert "/" not in route_digest("challenge", "nano-wide")
