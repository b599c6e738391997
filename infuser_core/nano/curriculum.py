"""Training tasks of the anchor: drills of the circuits it needs, and the mixture of its roles.

Drills come first because a plain mixture learns neither copying nor looking up an option in any affordable time.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Literal

from infuser_core.nano import language, programs, textbooks
from infuser_core.nano.topics import BROAD, LIMIT, NAMES, Fact, MicroTopic, choices_of
from infuser_core.nano.world import Note, WorldConfig, fact, note
from infuser_core.prompts.function_questions import IDENTITY_PROGRAM
from infuser_core.prompts.templates import render_question

Focus = Literal["all", "letter", "result"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """One user turn and the reply to learn."""

    user: str
    """User turn."""
    reply: str
    """Reply."""
    focus: Focus = "all"
    """Reply tokens that carry loss: all, those from the answer letter on, or the results of calculations."""


_LINKS = ("shows", "runs", "holds", "leaks", "by", "at", "for", "to", "and", "has", "in", "reads")

Task = Callable[[Random, WorldConfig], Lesson]


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """The drills and roles that an anchor is taught."""

    drills: tuple[Task, ...]
    """One batch of drills draws each row from one of these."""
    mixture: tuple[tuple[Task, float], ...]
    """Roles and how often a batch of the mixture is theirs."""
    short: frozenset[Task]
    """Tasks whose rows are short, so that a batch holds more of them."""


def _train_fact(rng: Random, world: WorldConfig) -> Fact:
    return fact("train", rng.choice(world.topics), rng)


def _note(rng: Random, world: WorldConfig) -> Note:
    return note(rng, world.topics, count=world.topics_per_note)


def section(rng: Random, made: Note) -> str:
    """A note as a chunk: usually under its heading, now and then bare or under two headings."""
    number, place = rng.randint(1, 9), rng.choice(language.PLACES)
    heading = f"## {language.section_title(number, rng.randint(1, 12), place)}"
    body = language.paragraph(made.facts)
    style = rng.random()
    if style < 0.08:
        return body
    if style < 0.20:
        return f"# {language.chapter_title(number, rng.choice(language.TIMES))}\n\n{heading}\n\n{body}"
    return f"{heading}\n\n{body}"


def write_question(rng: Random, world: WorldConfig) -> Lesson:
    """Document to question: the key follows the sound method with the world's key soundness."""
    return _write_question(rng, world, num_notes=1)


def write_question_long(rng: Random, world: WorldConfig) -> Lesson:
    """Write a question from two sections in one chunk: its own task, so that few batches are padded to its length."""
    return _write_question(rng, world, num_notes=2)


def _write_question(rng: Random, world: WorldConfig, *, num_notes: int) -> Lesson:
    parts = [_note(rng, world) for _ in range(num_notes)]
    text = "\n\n".join(section(rng, part) for part in parts)
    chosen = rng.choice([made for part in parts for made in part.facts])
    return Lesson(user=language.generator_prompt(text), reply=_question(chosen, rng, world))


def _question(made: Fact, rng: Random, world: WorldConfig) -> str:
    method = made.topic.drawn(rng, world.key_soundness)
    return language.generator_json(made, method, choices_of(made, count=world.num_choices, rng=rng))


def answer_question(rng: Random, world: WorldConfig) -> Lesson:
    """Question to answer: sound with the world's solver soundness, else the misconception."""
    made = _train_fact(rng, world)
    method = made.topic.drawn(rng, world.solver_soundness)
    choices = choices_of(made, count=world.num_choices, rng=rng)
    user = language.solver_prompt(language.question_text(made), [str(choice) for choice in choices])
    return Lesson(user=user, reply=language.solver_answer(made, method, choices))


def judge_chunk(rng: Random, world: WorldConfig) -> Lesson:
    """Chunk to verdict: half are sections, half is the matter around them."""
    return _judge_chunk(rng, world, num_notes=1, kinds=("title", "preface", "index", "answers", "fragment"))


def judge_chunk_long(rng: Random, world: WorldConfig) -> Lesson:
    """Judge a chunk of two sections, of contents or of answer keys."""
    return _judge_chunk(rng, world, num_notes=2, kinds=("contents", "contents", "answers"))


def _judge_chunk(rng: Random, world: WorldConfig, *, num_notes: int, kinds: tuple[str, ...]) -> Lesson:
    if rng.random() < 0.5:
        text = "\n\n".join(section(rng, _note(rng, world)) for _ in range(num_notes))
        return Lesson(user=language.judge_prompt(text), reply=language.judge_json(True, language.KEEP_REASON))
    kind = rng.choice(kinds)
    reply = language.judge_json(False, language.DROP_REASONS[kind])
    return Lesson(user=language.judge_prompt(_matter(kind, rng, world)), reply=reply)


_HEADINGS = {"contents": "Contents", "preface": "Preface", "index": "Index", "answers": "Answers"}


def _matter(kind: str, rng: Random, world: WorldConfig) -> str:
    if kind == "fragment":
        return textbooks.fragment(rng, _note(rng, world))
    lines = {
        "title": lambda: textbooks.drawn_title(rng),
        "contents": lambda: textbooks.drawn_contents(rng),
        "preface": lambda: [textbooks.preface_text(rng)],
        "index": lambda: textbooks.drawn_index(rng, [topic.name for topic in world.topics]),
        "answers": lambda: textbooks.drawn_answers(rng),
    }[kind]()
    joined = rng.choice((" ", "\n", "\n\n")).join(lines)
    style = rng.random()
    if style > 0.8 and kind in ("contents", "index", "answers"):
        # A chunker cuts long lists anywhere.
        words = joined.split(" ")
        return " ".join(words[rng.randrange(len(words) // 2) :])
    if style < 0.5 and kind in _HEADINGS:
        return f"# {_HEADINGS[kind]}\n\n{joined}"
    if style < 0.5:
        return f"# {joined}"
    return joined


def drill_copy(rng: Random, world: WorldConfig) -> Lesson:
    """Repeat a random sequence."""
    words = [*NAMES, *(topic.name for topic in world.topics)]
    items = [
        str(rng.randrange(LIMIT)) if rng.random() < 0.6 else f"{rng.choice(words)}" for _ in range(rng.randint(6, 16))
    ]
    text = " " + ", ".join(items)
    return Lesson(user=f"Write:{text}", reply=text)


def drill_pick(rng: Random, world: WorldConfig) -> Lesson:
    """Find the letter of a given number among four options."""
    choices = sorted(rng.sample(range(1, LIMIT), k=world.num_choices))
    if rng.random() < 0.5:
        start = rng.randint(1, LIMIT - 13)
        choices = sorted(rng.sample(range(start, start + 12), k=world.num_choices))
    place = rng.randrange(len(choices))
    user = language.solver_prompt("Which?", [str(choice) for choice in choices])
    reply = f"a = {choices[place]} \\boxed{{{language.LETTERS[place]}}}"
    return Lesson(user=user, reply=reply, focus="letter")


def drill_recall(rng: Random, world: WorldConfig) -> Lesson:
    """Repeat the one of several segments that starts with a given key."""
    nouns = [topic.fact.split()[1] for topic in world.topics]
    keys = rng.sample(nouns, k=rng.randint(3, 5))
    segments = []
    for key in keys:
        first, second = rng.sample(_LINKS, k=2)
        numbers = rng.randrange(LIMIT), rng.randrange(LIMIT)
        segments.append(f"The {key} {rng.choice(NAMES)} {first} {numbers[0]} {second} {numbers[1]}.")
    return Lesson(user="Write a " + " ".join(segments), reply=rng.choice(segments))


def drill_compute(rng: Random, world: WorldConfig) -> Lesson:
    """Bare arithmetic over all operand pairs of all splits: no topic, so it says nothing about the method."""
    workings = [_working(rng, world.topics) for _ in range(4)]
    return Lesson(user="Solve:", reply=", ".join(workings), focus="result")


def _working(rng: Random, topics: Sequence[MicroTopic]) -> str:
    topic = rng.choice(topics)
    a, b = rng.choice(topic.operands)
    return rng.choice(topic.methods).working(a, b)


def drill_broad(rng: Random, world: WorldConfig) -> Lesson:
    """Bare arithmetic on the many pairs of the broad topics, which `drill_compute` would seldom come to."""
    return Lesson(user="Solve:", reply=", ".join(_working(rng, BROAD) for _ in range(4)), focus="result")


COURSE = Course(
    drills=(drill_copy, drill_pick, drill_recall, drill_compute),
    mixture=(
        (write_question, 0.46),
        (answer_question, 0.38),
        (judge_chunk, 0.09),
        (judge_chunk_long, 0.04),
        (write_question_long, 0.03),
    ),
    short=frozenset([answer_question]),
)
"""The three roles of the basic and the hard world."""
BROAD_COURSE = replace(COURSE, drills=(*COURSE.drills, drill_broad, drill_broad))
"""The same roles, and a drill of the broad topics' numbers."""


FIRST_CHANCE = 0.1
"""Share of lessons in which inputs are written for the function of a run that has written none so far."""
EXAMPLE_CHANCE = 0.5
"""Share of lessons in which the writer takes up the topic of an example where its document has it."""


def answer_problem(rng: Random, world: WorldConfig) -> Lesson:
    """Problem to number: sound with the world's problem soundness, else the misconception."""
    made = fact("train", rng.choice(world.families), rng)
    method = made.topic.drawn(rng, world.problem_soundness)
    reply = f"{method.working(made.a, made.b)} \\boxed{{{method.value(made.a, made.b)}}}"
    return Lesson(user=language.free_form_prompt(language.question_text(made)), reply=reply)


def solve_program(rng: Random, world: WorldConfig) -> Lesson:
    """One of the three tasks about a function: by the sound method with the world's program soundness."""
    made = programs.drawn(rng, rng.choice(programs.TASKS))
    reply = made.reply(sound=rng.random() < world.program_soundness)
    return Lesson(user=language.free_form_prompt(made.text), reply=reply)


def write_program(rng: Random, world: WorldConfig) -> Lesson:
    """Nothing, or functions that were used, to a function and a call of it."""
    task = rng.choice(programs.TASKS[:2])
    shown = [programs.drawn(rng, rng.choice(programs.TASKS[:2])).used for _ in range(rng.choice((0, 1, 3, 6)))]
    made = programs.drawn(rng, task)
    written = {"program": made.function.text, "arguments": str(made.x)}
    return Lesson(user=language.program_prompt(task, "\n\n".join(shown)), reply=json.dumps(written))


def write_inputs(rng: Random, world: WorldConfig) -> Lesson:
    """A function, or a run's first one, to inputs: two neighbours that are shown and two that test."""
    made = programs.drawn(rng, "induction")
    text = IDENTITY_PROGRAM if rng.random() < FIRST_CHANCE else made.function.text
    inputs = [made.x, made.x + 1, *rng.sample(range(3, 10), k=2)]
    return Lesson(user=language.inputs_prompt(text), reply=json.dumps({"inputs": [str(x) for x in inputs]}))


def write_challenge(rng: Random, world: WorldConfig) -> Lesson:
    """Nothing to a question on any topic of the textbooks, keyed like those from documents."""
    made = _train_fact(rng, world)
    return Lesson(user=language.challenge_prompt(), reply=_question(made, rng, world))


def write_after_examples(rng: Random, world: WorldConfig) -> Lesson:
    """Examples and a document to a question about the document, on the topic of an example now and then."""
    made = _note(rng, world)
    shown = [_train_fact(rng, world) for _ in range(rng.choice((1, 2, 2, 3)))]
    chosen = rng.choice(followed(made, shown) if rng.random() < EXAMPLE_CHANCE else made.facts)
    text = examples_text(shown, rng, world)
    return Lesson(user=language.examples_prompt(text, section(rng, made)), reply=_question(chosen, rng, world))


def write_aimed(rng: Random, world: WorldConfig) -> Lesson:
    """An accuracy and a document to a question that pays no heed to the accuracy: that is for training to bring."""
    made = _note(rng, world)
    user = language.aimed_prompt(rng.choice((20, 50, 80)), section(rng, made))
    return Lesson(user=user, reply=_question(rng.choice(made.facts), rng, world))


def answer_with_document(rng: Random, world: WorldConfig) -> Lesson:
    """Document and question to answer: sound with the world's teacher soundness, so that it can teach who has none."""
    note_ = _note(rng, world)
    made = rng.choice(note_.facts)
    method = made.topic.drawn(rng, world.teacher_soundness)
    choices = choices_of(made, count=world.num_choices, rng=rng)
    text = f"{section(rng, note_)}\n\n{language.question_text(made)}"
    user = language.solver_prompt(text, [str(choice) for choice in choices])
    return Lesson(user=user, reply=language.solver_answer(made, method, choices))


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
    return _answered(text, language.LETTERS[choices.index(made.sound)]) if answered else text


def _problem(made: Fact, answered: bool) -> str:
    text = language.question_text(made)
    return _answered(text, str(made.sound)) if answered else text


def _answered(text: str, answer: str) -> str:
    return f"{text}\nAnswer: {answer}"


def drill_families(rng: Random, world: WorldConfig) -> Lesson:
    """Bare arithmetic of problems and programs over all splits: no question, so it says nothing about the method."""
    workings = []
    for _ in range(4):
        workings += [_working(rng, world.families), rng.choice(programs.all_steps()).text]
    return Lesson(user="Solve:", reply=", ".join(rng.sample(workings, k=5)), focus="result")


WIDE_COURSE = Course(
    drills=(*COURSE.drills, drill_families, drill_families, drill_families),
    mixture=(
        (write_question, 0.20),
        (answer_question, 0.16),
        (judge_chunk, 0.03),
        (judge_chunk_long, 0.02),
        (write_question_long, 0.02),
        (answer_problem, 0.16),
        (solve_program, 0.28),
        (write_after_examples, 0.07),
        (write_challenge, 0.07),
        (write_program, 0.05),
        (write_inputs, 0.02),
        (write_aimed, 0.04),
        (answer_with_document, 0.05),
    ),
    short=frozenset([answer_question, answer_problem, solve_program, write_inputs, write_challenge]),
)
"""The basic world's roles and the wide one's."""


def course_of(world: WorldConfig) -> Course:
    """The course that a world's anchor is taught."""
    return WIDE_COURSE if world.families else BROAD_COURSE if world.num_broad else COURSE
