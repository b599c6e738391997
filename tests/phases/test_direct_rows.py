"""Rows that carry their question: one question each, no text of a generator, no group of its update."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from test_phases_generator import VALID, config_of, document

from corpus.problems import problem_rows
from infuser_core.config.roles import ProblemSettings
from infuser_core.config.sources import NanoQuestions
from infuser_core.cotrain.phases.generate_questions import GeneratedQuestions, generate_questions, settings_of
from infuser_core.cotrain.phases.rollout_questions import rollout_questions
from infuser_core.cotrain.phases.rollout_questions import settings_of as answering_of
from infuser_core.engines.fake import ScriptedSampler
from infuser_core.errors import DocumentError
from infuser_core.evaluation.benchmarks.parts.question_sets import load_questions

SOURCE = NanoQuestions(split="train", size=4)
OPEN = json.dumps({"question_text": "What is half of one?", "ground_truth": "\\frac{1}{2}"})


def rows(route: str = "direct", count: int = 4):
    settings = ProblemSettings(source=SOURCE, count=count, route=route)
    return problem_rows(0, load_questions(SOURCE, seed=0), settings, [])


def generate(
    documents, problems, *overrides: str, reply=lambda prompt, seed: VALID, route: str = "", iteration: int = 0
):
    config = config_of("cotrain.documents=20", "cotrain.prompt_tokens=9000", *overrides)
    return generate_questions(
        documents, ScriptedSampler(reply=reply), replace(settings_of(config), route=route),
        checkpoint_id="g", seed=0, iteration=iteration,
        problems=problems,
    )  # fmt: skip


@pytest.fixture(scope="module")
def mixed() -> GeneratedQuestions:
    added = rows()
    return generate([document("d1"), document("d2"), *added.documents], added.problems)


def test_a_row_gives_one_question_and_a_document_many(mixed: GeneratedQuestions):
    by_document = [question.document_id for question in mixed.questions]
    assert {name: by_document.count(name) for name in by_document} == {
        "d1": 4, "d2": 4, **{row.document_id: 1 for row in rows().documents},
    }  # fmt: skip


def test_given_questions_are_the_problems_themselves(mixed: GeneratedQuestions):
    problems = {problem.document_id: problem for problem in rows().problems}
    given = [question for question in mixed.questions if question.document_id in problems]
    for question in given:
        problem = problems[question.document_id]
        assert (question.text, question.choices, question.answer) == (problem.text, problem.choices, problem.answer)
        assert question.rollout_id == ""


def test_the_generator_has_rollouts_and_labels_of_its_own_texts_alone():
    added = rows()
    made = generate(
        [document("d1"), *added.documents], added.problems, "cotrain.question.labeller=infuser_core.nano.lab:label"
    )
    assert {row.group_id for row in made.rollouts} == {"d1"}
    assert {label.question_id for label in made.labels} == {q.question_id for q in made.questions if q.rollout_id}


def test_the_solver_answers_a_given_question_as_often_as_any_other(mixed: GeneratedQuestions):
    config = config_of("cotrain.prompt_tokens=9000")
    answers, _ = rollout_questions(
        mixed.questions, ScriptedSampler(reply=lambda prompt, seed: "\\boxed{A}"), answering_of(config),
        checkpoint_id="s", seed=0, iteration=0,
    )  # fmt: skip
    counts = [row.group_id for row in answers]
    assert {counts.count(question.question_id) for question in mixed.questions} == {4}


def test_a_row_has_another_identifier_every_time_it_is_asked():
    added = rows()
    names = [
        question.question_id
        for iteration in (0, 1)
        for question in generate(added.documents, added.problems, iteration=iteration).questions
    ]
    assert len(set(names)) == len(names) == 8


def test_a_run_of_given_problems_needs_no_generator():
    added = rows(count=8)
    made = generate_questions(
        added.documents, None, settings_of(config_of("cotrain.documents=8", "cotrain.route=direct")),
        checkpoint_id="g", seed=0, iteration=0, problems=added.problems,
    )  # fmt: skip
    assert made.rollouts == [] and len(made.questions) == 8


def test_problems_can_be_texts_to_write_new_ones_from():
    added = rows("free_form")
    made = generate(added.documents, added.problems, "prompts=paper", reply=lambda prompt, seed: OPEN)
    assert {row.group_id for row in made.rollouts} == {row.document_id for row in added.documents}
    assert {(question.verifier, question.answer) for question in made.questions} == {("math", "\\frac{1}{2}")}


def test_the_runs_route_is_for_documents_and_problems_keep_theirs():
    added = rows()
    made = generate(
        [document("d1"), *added.documents], added.problems, "prompts=paper", route="free_form",
        reply=lambda prompt, seed: OPEN,
    )  # fmt: skip
    assert {q.verifier for q in made.questions if q.document_id == "d1"} == {"math"}
    assert sum(not question.rollout_id for question in made.questions) == 4


def test_a_row_that_carries_nothing_is_refused_with_its_name():
    with pytest.raises(DocumentError, match=rows().documents[0].document_id):
        generate(rows().documents[:1], [])


def test_a_document_says_itself_which_template_it_is_for(tmp_path: Path):
    for name, text in (("generate_mcq", "Choices: {text}"), ("generate_free_form", "Value: {text}")):
        (tmp_path / f"{name}.txt").write_text(text)
    seen: list[str] = []

    def reply(prompt: str, seed: int) -> str:
        seen.append(prompt)
        return VALID

    added = rows("free_form", count=1)
    generate([document("d1"), *added.documents], added.problems, f"prompts={tmp_path}", reply=reply)
    assert sum("Choices: six times seven" in prompt for prompt in seen) == 4
    assert sum("Value: " in prompt and "Answer: " in prompt for prompt in seen) == 4
