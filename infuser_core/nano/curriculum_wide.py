"""What the wide world's anchor is taught besides: answers without choices, programs, questions from no document."""

import json
from random import Random

from infuser_core.nano import curriculum as basic
from infuser_core.nano import language, programs
from infuser_core.nano.curriculum import COURSE, Course, Lesson
from infuser_core.nano.topics import Fact, Method, choices_of
from infuser_core.nano.world import Note, WorldConfig, fact, note
from infuser_core.prompts.load import render_question

EXAMPLE_CHANCE = 0.5
"""How often the writer takes up the topic of an example where its document has it."""


def answer_problem(rng: Random, world: WorldConfig) -> Lesson:
    """Problem to number: sound with the world's problem soundness, else the misconception."""
    made = fact("train", rng.choice(world.families), rng)
    method = made.topic.sound if rng.random() < world.problem_soundness else made.topic.tempting
    reply = f"{method.working(made.a, made.b)} \\boxed{{{method.value(made.a, made.b)}}}"
    return Lesson(user=language.free_form_prompt(language.question_text(made)), reply=reply)


def evaluate_program(rng: Random, world: WorldConfig) -> Lesson:
    """Expression to value: by the order of operations with the world's program soundness, else from left to right."""
    made = programs.drawn(rng)
    steps = made.steps(sound=rng.random() < world.program_soundness)
    reply = f"{steps[0].text}, {steps[1].text} \\boxed{{{steps[1].value}}}"
    return Lesson(user=language.free_form_prompt(programs.question_text(made)), reply=reply)


def write_program(rng: Random, world: WorldConfig) -> Lesson:
    """Nothing to a program."""
    return Lesson(user=language.program_prompt(), reply=json.dumps({"program": programs.drawn(rng).text}))


def write_challenge(rng: Random, world: WorldConfig) -> Lesson:
    """Nothing to a question on any topic of the textbooks, keyed like those from documents."""
    made = fact("train", rng.choice(world.topics), rng)
    return Lesson(user=language.challenge_prompt(), reply=_question(made, rng, world))


def write_after_examples(rng: Random, world: WorldConfig) -> Lesson:
    """Examples and a document to a question about the document, on the topic of an example now and then."""
    made = note(rng, world.topics, count=world.topics_per_note)
    shown = [fact("train", rng.choice(world.topics), rng) for _ in range(rng.choice((1, 2, 2, 3)))]
    chosen = rng.choice(followed(made, shown) if rng.random() < EXAMPLE_CHANCE else made.facts)
    text = examples_text(shown, rng, world)
    return Lesson(user=language.examples_prompt(text, basic.section(rng, made)), reply=_question(chosen, rng, world))


def followed(made: Note, shown: list[Fact]) -> tuple[Fact, ...]:
    """The note's facts on a topic of the examples; all of them where there is none."""
    topics = {example.topic.name for example in shown}
    return tuple(f for f in made.facts if f.topic.name in topics) or made.facts


def examples_text(shown: list[Fact], rng: Random, world: WorldConfig) -> str:
    """The examples as questions, with or without their answers; a problem may stand among them."""
    answered = rng.random() < 0.5
    blocks = [_example(made, answered, rng, world) for made in shown]
    if rng.random() < 0.2:
        blocks.append(_problem(fact("train", rng.choice(world.families), rng), answered))
    return rng.choice(("\n", "\n\n")).join(blocks)


def _example(made: Fact, answered: bool, rng: Random, world: WorldConfig) -> str:
    choices = choices_of(made, count=world.num_choices, rng=rng)
    text = render_question(language.question_text(made), [str(choice) for choice in choices])
    return f"{text}\nAnswer: {language.LETTERS[choices.index(made.sound)]}" if answered else text


def _problem(made: Fact, answered: bool) -> str:
    text = language.question_text(made)
    return f"{text}\nAnswer: {made.sound}" if answered else text


def _question(made: Fact, rng: Random, world: WorldConfig) -> str:
    method: Method = made.topic.sound if rng.random() < world.key_soundness else made.topic.tempting
    return language.generator_json(made, method, choices_of(made, count=world.num_choices, rng=rng))


def drill_families(rng: Random, world: WorldConfig) -> Lesson:
    """Bare arithmetic of problems and programs over all splits: no question, so it says nothing about the method."""
    workings = []
    for _ in range(4):
        topic = rng.choice(world.families)
        a, b = rng.choice(topic.operands)
        workings.append(rng.choice((topic.sound, topic.tempting)).working(a, b))
        step = rng.choice(programs.all_steps())
        workings.append(step.text)
    return Lesson(user="Solve:", reply=", ".join(rng.sample(workings, k=5)), focus="result")


WIDE_COURSE = Course(
    drills=(*COURSE.drills, drill_families, drill_families, drill_families),
    mixture=(
        (basic.write_question, 0.22),
        (basic.answer_question, 0.17),
        (basic.judge_chunk, 0.03),
        (basic.judge_chunk_long, 0.02),
        (basic.write_question_long, 0.02),
        (answer_problem, 0.18),
        (evaluate_program, 0.18),
        (write_after_examples, 0.08),
        (write_challenge, 0.08),
        (write_program, 0.02),
    ),
    short=frozenset([basic.answer_question, answer_problem, evaluate_program, write_program, write_challenge]),
)
"""The basic world's roles and the wide one's."""


def course_of(world: WorldConfig) -> Course:
    """The course that a world's anchor is taught."""
    return WIDE_COURSE if world.families else COURSE
