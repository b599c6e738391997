"""The configuration of a small real model: its files travel with the project, its prompts show what is parsed."""

import json
import re
from pathlib import Path

import pytest
from places import ROOT

from infuser_core.config.overlays import load
from infuser_core.config.sources import FileQuestions
from infuser_core.cotrain.phases.parsing import ParsedQuestion, parse
from infuser_core.evaluation.benchmarks.parts.question_sets import content_of, load_questions
from infuser_core.nano.lab import anchor_path
from infuser_core.planning.preflight import preflight
from infuser_core.prompts import templates as prompts
from infuser_core.prompts.templates import render_question
from infuser_core.schemas import Question
from infuser_core.verifiers.choice import check

NAME = "smollm2"
SETS = ("dev", "validation", "problems", "exam")


def questions(name: str) -> list[Question]:
    return load_questions(FileQuestions(type="file", path=f"configs/smollm2/{name}.jsonl"), seed=0)


def test_it_starts_in_any_folder_that_has_the_model_and_a_pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path("models").mkdir()
    Path("models/smollm2").symlink_to(anchor_path("basic"))
    Path("books/hmmer").mkdir(parents=True)
    preflight(load([Path(NAME)], []))


def test_a_file_of_ones_own_comes_before_the_shipped_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    source = FileQuestions(type="file", path="configs/smollm2/dev.jsonl")
    monkeypatch.chdir(tmp_path)
    shipped = content_of(source)
    own = tmp_path / source.path
    own.parent.mkdir(parents=True)
    own.write_text((ROOT / source.path).read_text().splitlines()[0])
    assert len(load_questions(source, seed=0)) == 1 and content_of(source) != shipped


def test_no_question_stands_in_two_sets():
    texts = [question.text for name in SETS for question in questions(name)]
    assert len(texts) == len(set(texts)) == 48


@pytest.mark.parametrize("name", SETS)
def test_the_right_answer_has_every_place(name: str):
    assert {question.answer for question in questions(name)} == {"A", "B", "C", "D"}


def test_the_examples_of_the_generators_prompt_are_valid_questions():
    rules = load([Path(NAME)], []).cotrain.question
    template = prompts.load_template("generate_mcq", profile="small")
    shown = re.findall(r"```json\n(.*?)\n```", template.user)
    parsed = [parse(text, min_choices=rules.min_choices, max_choices=rules.max_choices) for text in shown]
    assert [isinstance(each, ParsedQuestion) for each in parsed] == [True, True, False], "the last one is the form"


def test_the_examples_of_the_solvers_prompt_look_like_questions_and_count_as_answers():
    template = prompts.load_template("solve_mcq", profile="small")
    first, second, *_ = re.split(r"The correct answer is ", template.user)
    example = Question(
        question_id="q", text=first.splitlines()[0], choices=["the dog", "the eagle", "the horse", "the cat"],
        answer="B", verifier="choice", domain="", subdomain="",
    )  # fmt: skip
    assert render_question(example.text, example.choices) == first.strip()
    assert check(f"The correct answer is {second}", example).verdict == "correct"


def test_the_judges_examples_are_json():
    template = prompts.load_template("judge_chunk", profile="small")
    found = re.findall(r"^JSON: (.*)$", template.user, re.M)
    assert [json.loads(text)["keep"] for text in found] == [True, False]
