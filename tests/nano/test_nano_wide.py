"""The wide micro-world: problems and programs with splits of their own, and what the oracle knows of them."""

import dataclasses
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from places import CONFIGS

from infuser_core.benchmarks import nano_problems, nano_programs
from infuser_core.benchmarks.parts.question_sets import load_questions
from infuser_core.config.overlays import load
from infuser_core.config.run import BenchmarkSettings
from infuser_core.config.sources import NanoQuestions
from infuser_core.errors import ConfigError
from infuser_core.nano import curriculum, lab, language, programs, world
from infuser_core.nano.topics import FAMILIES, LIMIT, NAMES, TOPICS, Fact
from infuser_core.nano.world import WIDE, WORLD
from infuser_core.prompts.load import load as load_prompt
from infuser_core.verifiers import integer

SPLITS = ("train", "dev", "validation", "test")
FREE_FORM = ("problems", "programs")
numbers = st.integers(0, 99)
signs = st.sampled_from(sorted(programs.OPERATORS))
expressions = st.builds(programs.Expression, a=numbers, first=signs, b=numbers, second=signs, c=numbers)


def asked(topics: str, split: str, size: int):
    source = NanoQuestions.model_validate({"split": split, "topics": topics, "size": size, "world": "wide"})
    return load_questions(source, seed=0)


def test_families_share_no_word_with_the_textbooks_and_no_pair_between_splits():
    words = [topic.fact.split()[1] for topic in (*TOPICS, *FAMILIES)]
    assert len(set(words)) == len(words) and WIDE.topics == WORLD.topics
    for family in FAMILIES:
        pairs = [pair for split in SPLITS for pair in world.pairs_of(split, family)]
        assert sorted(pairs) == sorted(family.operands) and len(pairs) == len(set(pairs)) >= 90


def test_programs_are_divided_between_the_splits():
    for form in programs.FORMS:
        texts = [made.text for split in SPLITS for made in programs.expressions(split, form)]
        assert len(set(texts)) == len(texts) >= 200
        for made in programs.expressions("train", form):
            assert made.fits and (made.sound != made.tempting) == (form.signs[1] == "*")


@given(expressions)
def test_an_expression_is_worth_what_python_says(made):
    assert made.sound == eval(made.text)
    assert made.tempting == eval(f"({made.a} {made.first} {made.b}) {made.second} {made.c}")
    assert programs.parse_question(programs.question_text(made)) == made
    for sound in (True, False):
        for step in made.steps(sound=sound):
            assert step.text == f"{step.left} {step.sign} {step.right} = {step.value}"


@given(st.sampled_from(FAMILIES), st.sampled_from(NAMES), st.data())
def test_a_problem_is_read_back_to_its_fact(family, name, data):
    a, b = data.draw(st.sampled_from(family.operands))
    fact = Fact(topic=family, name=name, a=a, b=b)
    assert language.parse_question(language.question_text(fact)) == fact
    assert fact.sound != fact.tempting and 0 < fact.sound < LIMIT


@pytest.mark.parametrize("topics", FREE_FORM)
@pytest.mark.parametrize(("split", "size"), [("train", 300), ("dev", 64), ("validation", 96), ("test", 200)])
def test_free_form_questions_are_distinct_and_answered_soundly(topics, split, size):
    questions = asked(topics, split, size)
    assert len({q.text for q in questions}) == len({q.question_id for q in questions}) == size
    for question in questions:
        assert not question.choices and question.verifier == "integer"
        assert question.answer == str(lab.sound_answer(question.text)) != str(lab.tempting_answer(question.text))
        assert lab.topic_of(question.text) == question.subdomain
        assert integer.check(f"1 + 1 = 2 \\boxed{{{question.answer}}}", question).verdict == "correct"
    assert questions == asked(topics, split, size)


@pytest.mark.parametrize("topics", FREE_FORM)
def test_no_question_stands_in_two_splits(topics):
    sets = [{q.text for q in asked(topics, split, 60)} for split in SPLITS]
    assert len(set().union(*sets)) == 240


@pytest.mark.parametrize(("module", "size"), [(nano_problems, 400), (nano_programs, 200)])
def test_the_benchmarks_ask_the_test_split(module, size):
    questions = module.load(BenchmarkSettings(name="x", world="wide"))
    held = asked(module.BENCHMARK.name.removeprefix("nano_"), "test", size)
    assert questions == held and len(questions) == size == module.BENCHMARK.rows


def test_other_worlds_have_no_problems():
    with pytest.raises(ConfigError, match="world 'basic' has no problems"):
        load_questions(NanoQuestions(split="dev", topics="problems", size=4), seed=0)
    with pytest.raises(ConfigError, match=r"programs, 9999 are asked for"):
        programs.questions("dev", 9999, 0)


def test_the_oracle_labels_and_corrects_free_form_keys():
    for question in (*asked("problems", "dev", 12), *asked("programs", "dev", 12)):
        wrong = dataclasses.replace(question, answer=str(lab.tempting_answer(question.text)))
        assert lab.label(question).key == "sound" and lab.label(wrong).key == "unsound"
        assert lab.perfect_key(wrong) == question == lab.perfect_key(question)
    assert lab.topic_of("What is 7 + 3 * 5?") == programs.TOPIC
    assert lab.sound_answer("What is 7 + 3 * 5?") == 22 and lab.tempting_answer("What is 7 + 3 * 5?") == 50
    assert lab.sound_answer("What is life?") is lab.sound_answer("What is 7 +?") is None


def test_the_profile_adds_four_prompts_to_the_nano_labs():
    for name in ("generate_mcq", "solve_mcq", "judge_chunk"):
        assert load_prompt(name, profile="nano-wide").user == load_prompt(name, profile="nano").user
    slots = {"question": "Q", "examples": "E", "text": "T"}
    for name, wanted in (
        ("solve_free_form", ["question"]),
        ("generate_challenge", []),
        ("generate_program", []),
        ("generate_mcq_examples", ["examples", "text"]),
    ):
        (turn,) = load_prompt(name, profile="nano-wide").messages(**{slot: slots[slot] for slot in wanted})
        assert "{" not in turn["content"]
        assert all(slots[slot] in turn["content"].split("\n") for slot in wanted)
    with pytest.raises(ConfigError):
        load_prompt("solve_free_form", profile="nano")


def test_examples_stand_before_the_document_and_lead_the_writer():
    rng = Random(0)
    followed = 0
    for _ in range(200):
        lesson = curriculum.write_after_examples(rng, WIDE)
        head, _, tail = lesson.user.rpartition("Write a question:\n")
        told = language.parse_question(lesson.reply.partition('"question_text": "')[2].partition('"')[0])
        assert told and language.fact_text(told) in tail
        followed += f" {told.topic.fact.split()[1]} " in head
    # Two of eight topics are shown on average, and half of the lessons follow them where the document can.
    assert 60 <= followed <= 160


def test_the_configuration_names_the_wide_world_everywhere():
    config = load([CONFIGS / "nano-wide.yaml"])
    worlds = [config.anchor.world, config.corpus.catalogue.world, *(b.world for b in config.evaluate.benchmarks)]
    assert {*worlds, config.data.dev.world, config.data.validation.world} == {"wide"}
    assert config.prompts == language.WIDE
    basic = load([CONFIGS / "nano.yaml"]).cotrain
    assert config.cotrain.model_copy(update={"prompt_tokens": basic.prompt_tokens}) == basic
