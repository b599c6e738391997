"""The micro-world: splits share no operand pair, questions are answered soundly, and the oracle knows all of it."""

import dataclasses
import hashlib
import json
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from places import CONFIGS

from infuser_core.config.overlays import load
from infuser_core.config.run import BenchmarkSettings, QuestionSettings
from infuser_core.config.sources import NanoQuestions
from infuser_core.cotrain.phases.generate_questions import generate_questions, settings_of
from infuser_core.cotrain.phases.parts.few_shot import PROGRAMS_TEMPLATE, ExamplePool, render_examples
from infuser_core.cotrain.route import find_route
from infuser_core.engines.fake import ScriptedSampler
from infuser_core.errors import ConfigError
from infuser_core.evaluation.benchmarks import nano_problems, nano_programs, nano_target, nano_transfer
from infuser_core.evaluation.benchmarks.parts.question_sets import load_questions
from infuser_core.nano import curriculum, lab, language, programs, world
from infuser_core.nano.textbooks import BOOKS, book_notes
from infuser_core.nano.topics import ALL_TOPICS, BROAD, COMPOSED, FAMILIES, LIMIT, NAMES, TOPICS, Fact, choices_of
from infuser_core.nano.world import TARGET, WORLD, draw_notes, draw_questions, pairs_of, world_of
from infuser_core.prompts.templates import load_template as load_prompt
from infuser_core.schemas import Document
from infuser_core.verifiers import integer
from infuser_core.verifiers.parts.batch import find_verifier

HARD, WIDE = world_of("hard"), world_of("wide")
SPLITS = ("train", "dev", "validation", "test")
FREE_FORM = ("problems", "programs")
ORACLE = "infuser_core.nano.lab:perfect_key"
exercises = st.sampled_from(
    [
        made
        for split in SPLITS
        for task in programs.TASKS
        for sign in "+-"
        for made in programs.exercises_of(split, task, sign)
    ]
)
BLANK = Document(
    document_id="b", source_id="blank", header_path="", start=0, end=0, text="", num_tokens=0, domain="", prompt_type=""
)


@st.composite
def facts(draw: st.DrawFn) -> Fact:
    topic = draw(st.sampled_from((*ALL_TOPICS, *COMPOSED, *BROAD, *FAMILIES)))
    a, b = draw(st.sampled_from(topic.operands))
    return Fact(topic=topic, name=draw(st.sampled_from(NAMES)), a=a, b=b)


def asked(topics: str, split: str, size: int):
    source = NanoQuestions.model_validate({"split": split, "topics": topics, "size": size, "world": "wide"})
    return load_questions(source, seed=0)


def test_the_basic_world_keeps_its_questions():
    rows = [
        {name: value for name, value in dataclasses.asdict(question).items() if name != "grading"}
        for split in ("dev", "validation", "test")
        for topics in (TARGET, WORLD.transfer)
        for question in draw_questions(split, topics, 40, 0)
    ]
    assert hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()[:16] == "9b6cf90faf283710"


@pytest.mark.parametrize("topic", (*ALL_TOPICS, *COMPOSED, *BROAD, *FAMILIES), ids=lambda topic: topic.name)
def test_splits_divide_the_operand_pairs(topic):
    pairs = [pair for split in SPLITS for pair in pairs_of(split, topic)]
    assert sorted(pairs) == sorted(topic.operands)
    assert len(pairs) == len(set(pairs)) >= 40


def test_every_topic_has_words_of_its_own():
    for words in (
        [t.name for t in ALL_TOPICS],
        [t.fact.split()[1] for t in (*ALL_TOPICS, *COMPOSED, *BROAD, *FAMILIES)],
    ):
        assert len(set(words)) == len(words) >= 16
    assert (len(WORLD.topics), len(HARD.topics), WIDE.topics) == (8, 16, WORLD.topics)
    assert set(TARGET).isdisjoint(HARD.transfer) and len(HARD.transfer) == 14


def test_a_composed_topic_takes_two_steps_of_other_topics():
    known = {(topic.sound.form, topic.tempting.form) for topic in ALL_TOPICS}
    for topic in COMPOSED:
        steps = zip(topic.sound.steps, topic.tempting.steps, strict=True)
        assert {(sound.form, tempting.form) for sound, tempting in steps} <= known
        a, b = topic.operands[0]
        fact = Fact(topic=topic, name="Abra", a=a, b=b)
        assert len(topic.methods) == 4 and choices_of(fact, count=4, rng=Random(0)) == sorted(
            method.value(a, b) for method in topic.methods
        )
        first, then = topic.sound.working(a, b).split(", ")
        assert then.startswith(first.split(" = ")[1]) and then.endswith(f" = {topic.sound.value(a, b)}")


def test_each_step_of_a_composed_method_follows_the_sound_one_by_itself():
    rng, (pump, *_) = Random(0), COMPOSED
    drawn = [pump.draw_method(rng, 0.3) for _ in range(4000)]
    shares = [sum(method is known for method in drawn) / len(drawn) for known in pump.methods]
    assert shares == pytest.approx([0.09, 0.49, 0.21, 0.21], abs=0.03)


@pytest.mark.parametrize("task", programs.TASKS)
def test_programs_are_divided_between_the_splits(task):
    made = [each.text for split in SPLITS for sign in "+-" for each in programs.exercises_of(split, task, sign)]
    assert len(set(made)) == len(made) >= 300


def test_textbook_notes_hold_train_pairs_on_different_topics():
    made = draw_notes(3, 200)
    assert len(made) == 200
    for note in made:
        assert len({fact.topic.name for fact in note.facts}) == 4
        assert all((fact.a, fact.b) in pairs_of("train", fact.topic) for fact in note.facts)


@pytest.mark.parametrize(
    ("split", "topics", "count"),
    [("dev", TARGET, 64), ("validation", TARGET, 128), ("test", TARGET, 400), ("test", WORLD.transfer, 400)],
)
def test_every_split_has_enough_distinct_questions(split, topics, count):
    made = draw_questions(split, topics, count, 0)
    assert len({question.text for question in made}) == count
    assert {question.subdomain for question in made} == set(topics)


@pytest.mark.parametrize("name", ["basic", "hard"])
def test_the_answer_is_the_letter_of_the_sound_result(name):
    settings = BenchmarkSettings(name="x", world=name)
    made = [question for module in (nano_target, nano_transfer) for question in module.load(settings)]
    assert len({question.text for question in made}) == 800
    assert {question.subdomain for question in made} == {topic.name for topic in world_of(name).topics}
    for question in made:
        known = language.parse_question(question.text)
        assert question.choices["ABCD".index(question.answer)] == str(known.sound)
        assert str(known.tempting) in question.choices and known.topic.name == question.subdomain
        assert question.choices == sorted(question.choices, key=int) and len(set(question.choices)) == 4


@pytest.mark.parametrize(("split", "size"), [("train", 300), ("dev", 64), ("validation", 96), ("test", 200)])
def test_free_form_questions_are_distinct_and_answered_soundly(split, size):
    made = asked("problems", split, size)
    assert len({q.text for q in made}) == len({q.question_id for q in made}) == size
    for question in made:
        known = language.parse_question(question.text)
        assert not question.choices and question.verifier == "integer"
        assert question.answer == str(known.sound) != str(known.tempting) and known.topic.name == question.subdomain
        assert integer.check(f"1 + 1 = 2 \\boxed{{{question.answer}}}", question).verdict == "correct"


@pytest.mark.parametrize("topics", FREE_FORM)
def test_no_question_stands_in_two_splits(topics):
    sets = [{q.text for q in asked(topics, split, 60)} for split in SPLITS]
    assert len(set().union(*sets)) == 240


@pytest.mark.parametrize(("module", "size"), [(nano_problems, 400), (nano_programs, 200)])
def test_the_benchmarks_ask_the_test_split(module, size):
    made = module.load(BenchmarkSettings(name="x", world="wide"))
    held = asked(module.BENCHMARK.name.removeprefix("nano_"), "test", size)
    assert made == held and len(made) == size == module.BENCHMARK.rows


@given(facts())
def test_a_question_is_read_back_to_its_fact(fact):
    assert language.parse_question(language.question_text(fact)) == fact


@given(facts(), st.integers(0, 2**32))
def test_both_methods_differ_and_are_offered(fact, seed):
    choices = choices_of(fact, count=4, rng=Random(seed))
    assert fact.sound != fact.tempting and fact.is_exact
    assert {fact.sound, fact.tempting} <= set(choices)
    assert all(0 < choice < LIMIT for choice in choices)


@given(exercises)
def test_the_sound_way_ends_where_python_does_and_the_misconception_elsewhere(made):
    scope: dict = {}
    exec(made.function.text, scope)
    sound, tempting = made.answer(sound=True), made.answer(sound=False)
    if made.task == "deduction":
        assert int(sound) == scope["f"](made.x) != int(tempting)
    if made.task == "abduction":
        assert scope["f"](int(sound)) == scope["f"](made.x) != scope["f"](int(tempting))
    if made.task == "induction":
        assert sound == made.function.text != tempting
    for way in (True, False):
        assert made.reply(sound=way).endswith(f"{{{made.answer(sound=way)}}}")
        assert all(eval(step.text.replace("=", "==")) for step in made.steps(sound=way))


@pytest.mark.parametrize("task", programs.TASKS)
def test_routes_ask_as_the_lessons_do_and_judge_both_ways(task):
    for made in programs.sample_exercises(task, "test", 2, 7):
        written = {"program": made.function.text, "arguments": str(made.x)}
        inputs = {"inputs": [str(x) for x in (made.x, made.x + 1, *programs.HIDDEN)]}
        text = json.dumps(inputs if task == "induction" else written)
        document = dataclasses.replace(BLANK, text=made.function.text)
        assert programs.is_well_formed(task, text)
        asked = find_route(task).read(text, document, "r", QuestionSettings())
        held = made.question("q")
        for name in ("text", "answer", "verifier", "grading"):
            assert getattr(asked, name) == getattr(held, name)
        found = [find_verifier(held.verifier).check(made.reply(sound=way), held).verdict for way in (True, False)]
        assert found == ["correct", "wrong"]


def test_a_proposers_text_of_another_form_is_not_counted():
    assert not programs.is_well_formed("deduction", '{"program": "7 + 3 * 5"}')
    assert not programs.is_well_formed("induction", '{"inputs": ["0", "1", "4", "4"]}')


def test_a_used_function_is_shown_as_in_the_lessons():
    made = programs.draw_exercise(Random(0), "deduction").question("q")
    shown = render_examples(
        ExamplePool(questions=[made], count=1), "d", seed=0, iteration=0, template=PROGRAMS_TEMPLATE
    )
    assert shown == programs.draw_exercise(Random(0), "deduction").example


def test_the_oracle_knows_no_answer_to_other_texts():
    for text in ("What is the capital of Mira?", "What is 7 + 3 * 5?"):
        assert language.parse_question(text) is None
    for text in (
        "The block Mira has 7 grams in 0 litres. What density?",
        "The gauge Mira reads 4 and then 7. What mean?",
    ):
        assert not language.parse_question(text).is_exact


def wrong_key(question):
    """The question with another choice, or the misconception's number, as its key."""
    if question.choices:
        return dataclasses.replace(question, answer="ABCD"["ABCD".index(question.answer) - 1])
    return dataclasses.replace(question, answer=str(language.parse_question(question.text).tempting))


def test_the_oracle_labels_and_corrects_keys():
    made = [*draw_questions("test", TARGET, 20, 2), *asked("problems", "dev", 12)]
    for question in (*made, *draw_questions("test", HARD.transfer, 28, 2, HARD)):
        wrong = wrong_key(question)
        assert (lab.label(question).key, lab.label(wrong).key) == ("sound", "unsound")
        assert lab.perfect_key(wrong) == question == lab.perfect_key(question)
        other = dataclasses.replace(question, text="Why?")
        assert lab.label(other).key == "unknown" and lab.perfect_key(other) == other
        if question.choices:
            lost = [
                choice for choice in question.choices if choice != str(language.parse_question(question.text).sound)
            ]
            without = dataclasses.replace(question, choices=[*lost, "0"], answer="A")
            assert lab.perfect_key(without) == without


def test_the_stored_question_carries_the_oracles_key():
    fact = book_notes(BOOKS[0], 0, HARD)[0][0].facts[0]
    choices = sorted({fact.sound, fact.tempting, 98, 99})
    config = load([CONFIGS / "nano.yaml"], ["cotrain.documents=1", "cotrain.generator_tokens=400"])
    document = Document(
        document_id="d", source_id="s", header_path="", start=0, end=1, text=language.fact_text(fact), num_tokens=1,
        domain="Physics", prompt_type="mcq",
    )  # fmt: skip
    sampler = ScriptedSampler(reply=lambda prompt, seed: language.generator_json(fact, fact.topic.tempting, choices))
    keys = {}
    for name in ("", ORACLE):
        question = config.cotrain.question.model_copy(update={"oracle": name})
        settings = dataclasses.replace(settings_of(config), question=question, prompt_tokens=4000)
        made = generate_questions([document], sampler, settings, checkpoint_id="c", seed=0, iteration=0)
        assert len(made.questions) == 4
        keys[name] = {q.choices["ABCD".index(q.answer)] for q in made.questions}
    assert keys == {"": {str(fact.tempting)}, ORACLE: {str(fact.sound)}}


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: draw_questions("dev", ["alchemy"], 1, 0), "no topic 'alchemy'"),
        (lambda: programs.draw_questions("dev", 9999, 0), "programs for deduction, 3333 are requested"),
        (
            lambda: load_questions(NanoQuestions(split="dev", topics="problems", size=4), seed=0),
            "world 'basic' has no problems",
        ),
    ],
)
def test_more_than_a_world_has_is_refused(ask, message):
    with pytest.raises(ConfigError, match=message):
        ask()


def test_the_wide_profile_adds_prompts_to_the_labs():
    for name in ("generate_mcq", "solve_mcq", "judge_chunk"):
        assert load_prompt(name, profile="nano-wide").user == load_prompt(name, profile="nano").user
    slots = {"question": "Q", "examples": "E", "text": "T"}
    for name, wanted in (
        ("solve_free_form", ["question"]),
        ("generate_challenge", []),
        ("generate_deduction", []),
        ("generate_abduction", []),
        ("generate_induction", ["text"]),
        ("solve_code", ["question"]),
        ("show_programs", ["examples"]),
        ("show_questions", ["examples"]),
    ):
        (turn,) = load_prompt(name, profile="nano-wide").messages(**{slot: slots[slot] for slot in wanted})
        assert "{" not in turn["content"]
        assert all(slots[slot] in turn["content"].split("\n") for slot in wanted)
    with pytest.raises(ConfigError):
        load_prompt("solve_free_form", profile="nano")


def test_examples_stand_before_the_document_and_lead_the_writer():
    rng, followed = Random(0), 0
    for _ in range(200):
        lesson = curriculum.write_after_examples(rng, WIDE)
        head, _, tail = lesson.user.rpartition("Write a question:\n")
        told = language.parse_question(lesson.reply.partition('"question_text": "')[2].partition('"')[0])
        assert told and language.fact_text(told) in tail
        followed += f" {told.topic.fact.split()[1]} " in head
    # Two of eight topics are shown on average, and half of the lessons follow them where the document can.
    assert 60 <= followed <= 160


@pytest.mark.parametrize(("file", "name"), [("nano", "hard"), ("nano-basic", "basic"), ("nano-wide", "wide")])
def test_a_configuration_names_its_world_everywhere(file, name):
    config = load([CONFIGS / f"{file}.yaml"])
    worlds = [config.anchor.world, config.corpus.catalogue.world, *(b.world for b in config.evaluate.benchmarks)]
    assert {*worlds, config.data.dev.world, config.data.validation.world} == {name}
    assert len(load_questions(config.data.dev, seed=1)) == config.data.dev.size


def test_a_set_of_questions_may_name_its_topics():
    named = load([CONFIGS / "nano.yaml", CONFIGS / "world" / "narrow_dev.yaml"]).data
    assert {question.subdomain for question in load_questions(named.dev, seed=1)} == {"voltage", "tank"}
    with pytest.raises(ConfigError, match="no topic 'tides'"):
        load_questions(named.dev.model_copy(update={"topics": ["tides"]}), seed=1)


def test_half_of_the_wrong_keys_are_corrected():
    wrong = [wrong_key(question) for question in draw_questions("test", TARGET, 400, 2)]
    right = sum(lab.half_perfect_key(question) == lab.perfect_key(question) for question in wrong)
    assert 150 < right < 250


def test_overlays_apply_to_the_hard_world_and_the_wide_one_differs_by_its_prompts():
    for overlay in ("perfect_keys", "group_std", "batch_std", "difficulty", "sgd_cosine", "fixed_generator"):
        assert load([CONFIGS / "nano.yaml", CONFIGS / "ablation" / f"{overlay}.yaml"]).variant
    assert load([CONFIGS / "nano.yaml", CONFIGS / "ablation" / "perfect_keys.yaml"]).cotrain.question.oracle == ORACLE
    wide, basic = load([CONFIGS / "nano-wide.yaml"]), load([CONFIGS / "nano-basic.yaml"]).cotrain
    assert wide.prompts == language.WIDE
    assert wide.cotrain.model_copy(update={"prompt_tokens": basic.prompt_tokens}) == basic
    assert world.WORLD.coordinate_spread == 0 < HARD.coordinate_spread
    assert WORLD.topics == TOPICS
