"""Training tasks for the anchor, the micro-world's base model: drills of basic skills, and the mixture of its roles.

Drills come first: from a plain mixture alone, the model does not learn to copy or to look up an option in affordable
time. A lesson is one prompt with the reply to learn; soundness is the probability of the sound method.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Literal

from infuser_core.nano import language, programs, textbooks
from infuser_core.nano.topics import BROAD, LIMIT, NAMES, Fact, MicroTopic, choices_of
from infuser_core.nano.world import Note, WorldConfig, draw_fact, draw_note
from infuser_core.prompts.function_questions import IDENTITY_PROGRAM
from infuser_core.prompts.templates import render_question

Focus = Literal["all", "letter", "result"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """One user turn and the reply to learn."""

    user: str
    reply: str
    focus: Focus = "all"
    """Reply tokens with a loss: all, those from the answer letter on, or the results of calculations."""


_LINKS = ("shows", "runs", "holds", "leaks", "by", "at", "for", "to", "and", "has", "in", "reads")

Task = Callable[[Random, WorldConfig], Lesson]


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """Tasks of an anchor's training: drills, and a mixture of roles."""

    drills: tuple[Task, ...]
    """Drill tasks; each row of a drill batch is drawn from one of them."""
    mixture: tuple[tuple[Task, float], ...]
    """Role tasks, each with its share of the other batches."""
    short: frozenset[Task]
    """Tasks with short rows: their batches have more of them."""


def _draw_train_fact(rng: Random, world: WorldConfig) -> Fact:
    return draw_fact("train", rng.choice(world.topics), rng)


def _draw_note(rng: Random, world: WorldConfig) -> Note:
    return draw_note(rng, world.topics, count=world.topics_per_note)


def section_text(rng: Random, note: Note) -> str:
    """Render a note as a document chunk: usually with its heading, sometimes with none or two."""
    number, place = rng.randint(1, 9), rng.choice(language.PLACES)
    heading = f"## {language.section_title(number, rng.randint(1, 12), place)}"
    body = language.paragraph(note.facts)
    style = rng.random()
    if style < 0.08:
        return body
    if style < 0.20:
        return f"# {language.chapter_title(number, rng.choice(language.TIMES))}\n\n{heading}\n\n{body}"
    return f"{heading}\n\n{body}"


def write_question(rng: Random, world: WorldConfig) -> Lesson:
    """Lesson: write a question from a document; the key follows the sound method with the world's key soundness."""
    return _write_question(rng, world, num_notes=1)


def write_question_long(rng: Random, world: WorldConfig) -> Lesson:
    """Lesson: write a question from two sections in one chunk; a separate task, so that few batches are padded."""
    return _write_question(rng, world, num_notes=2)


def _write_question(rng: Random, world: WorldConfig, *, num_notes: int) -> Lesson:
    notes = [_draw_note(rng, world) for _ in range(num_notes)]
    text = "\n\n".join(section_text(rng, note) for note in notes)
    fact = rng.choice([fact for note in notes for fact in note.facts])
    return Lesson(user=language.generator_prompt(text), reply=_question_json(fact, rng, world))


def _question_json(fact: Fact, rng: Random, world: WorldConfig) -> str:
    method = fact.topic.draw_method(rng, world.key_soundness)
    return language.generator_json(fact, method, choices_of(fact, count=world.num_choices, rng=rng))


def answer_question(rng: Random, world: WorldConfig) -> Lesson:
    """Lesson: answer a question by the sound method with the world's solver soundness, else by the misconception."""
    fact = _draw_train_fact(rng, world)
    method = fact.topic.draw_method(rng, world.solver_soundness)
    choices = choices_of(fact, count=world.num_choices, rng=rng)
    user = language.solver_prompt(language.question_text(fact), [str(choice) for choice in choices])
    return Lesson(user=user, reply=language.solver_answer(fact, method, choices))


def judge_chunk(rng: Random, world: WorldConfig) -> Lesson:
    """Lesson: judge a chunk, whether to keep it; half of the chunks are sections, half front or back matter."""
    return _judge_chunk(rng, world, num_notes=1, kinds=("title", "preface", "index", "answers", "fragment"))


def judge_chunk_long(rng: Random, world: WorldConfig) -> Lesson:
    """Lesson: judge a long chunk of two sections, of a table of contents or of answer keys."""
    return _judge_chunk(rng, world, num_notes=2, kinds=("contents", "contents", "answers"))


def _judge_chunk(rng: Random, world: WorldConfig, *, num_notes: int, kinds: tuple[str, ...]) -> Lesson:
    if rng.random() < 0.5:
        text = "\n\n".join(section_text(rng, _draw_note(rng, world)) for _ in range(num_notes))
        return Lesson(user=language.judge_prompt(text), reply=language.judge_json(True, language.KEEP_REASON))
    kind = rng.choice(kinds)
    reply = language.judge_json(False, language.DROP_REASONS[kind])
    return Lesson(user=language.judge_prompt(_matter_text(kind, rng, world)), reply=reply)


_HEADINGS = {"contents": "Contents", "preface": "Preface", "index": "Index", "answers": "Answers"}


def _matter_text(kind: str, rng: Random, world: WorldConfig) -> str:
    if kind == "fragment":
        return textbooks.draw_fragment(rng, _draw_note(rng, world))
    lines = {
        "title": lambda: textbooks.draw_title(rng),
        "contents": lambda: textbooks.draw_contents(rng),
        "preface": lambda: [textbooks.preface_text(rng)],
        "index": lambda: textbooks.draw_index(rng, [topic.name for topic in world.topics]),
        "answers": lambda: textbooks.draw_answers(rng),
    }[kind]()
    joined = rng.choice((" ", "\n", "\n\n")).join(lines)
    style = rng.random()
    if style > 0.8 and kind in ("contents", "index", "answers"):
        # A chunker splits long lists anywhere.
        words = joined.split(" ")
        return " ".join(words[rng.randrange(len(words) // 2) :])
    if style < 0.5 and kind in _HEADINGS:
        return f"# {_HEADINGS[kind]}\n\n{joined}"
    if style < 0.5:
        return f"# {joined}"
    return joined


def drill_copy(rng: Random, world: WorldConfig) -> Lesson:
    """Drill: repeat a random sequence of numbers and words."""
    words = [*NAMES, *(topic.name for topic in world.topics)]
    items = [
        str(rng.randrange(LIMIT)) if rng.random() < 0.6 else f"{rng.choice(words)}" for _ in range(rng.randint(6, 16))
    ]
    text = " " + ", ".join(items)
    return Lesson(user=f"Write:{text}", reply=text)


def drill_pick(rng: Random, world: WorldConfig) -> Lesson:
    """Drill: find the letter of a given number among the options."""
    choices = sorted(rng.sample(range(1, LIMIT), k=world.num_choices))
    if rng.random() < 0.5:
        start = rng.randint(1, LIMIT - 13)
        choices = sorted(rng.sample(range(start, start + 12), k=world.num_choices))
    place = rng.randrange(len(choices))
    user = language.solver_prompt("Which?", [str(choice) for choice in choices])
    reply = f"a = {choices[place]} \\boxed{{{language.LETTERS[place]}}}"
    return Lesson(user=user, reply=reply, focus="letter")


def drill_recall(rng: Random, world: WorldConfig) -> Lesson:
    """Drill: repeat the one of several sentences that starts with a given key."""
    nouns = [topic.fact.split()[1] for topic in world.topics]
    keys = rng.sample(nouns, k=rng.randint(3, 5))
    segments = []
    for key in keys:
        first, second = rng.sample(_LINKS, k=2)
        numbers = rng.randrange(LIMIT), rng.randrange(LIMIT)
        segments.append(f"The {key} {rng.choice(NAMES)} {first} {numbers[0]} {second} {numbers[1]}.")
    return Lesson(user="Write a " + " ".join(segments), reply=rng.choice(segments))


def drill_compute(rng: Random, world: WorldConfig) -> Lesson:
    """Drill: bare arithmetic over the operand pairs of all splits; it names no topic, so it teaches no method."""
    workings = [_draw_working(rng, world.topics) for _ in range(4)]
    return Lesson(user="Solve:", reply=", ".join(workings), focus="result")


def _draw_working(rng: Random, topics: Sequence[MicroTopic]) -> str:
    topic = rng.choice(topics)
    a, b = rng.choice(topic.operands)
    return rng.choice(topic.methods).working(a, b)


def drill_broad(rng: Random, world: WorldConfig) -> Lesson:
    """Drill: bare arithmetic on the many operand pairs of the broad topics, which `drill_compute` rarely draws."""
    return Lesson(user="Solve:", reply=", ".join(_draw_working(rng, BROAD) for _ in range(4)), focus="result")


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
"""Course of worlds without broad topics or problems: drills, and the roles of generator, solver and judge."""
BROAD_COURSE = replace(COURSE, drills=(*COURSE.drills, drill_broad, drill_broad))
"""Course of the broad world: `COURSE` with a drill of the broad topics' numbers."""

FIRST_CHANCE = 0.1
"""Share of `write_inputs` lessons about the function that a run starts with."""
EXAMPLE_CHANCE = 0.5
"""Share of `write_after_examples` lessons on the topic of an example, if the document has it."""


def answer_problem(rng: Random, world: WorldConfig) -> Lesson:
    """Lesson: solve a free-form problem soundly with the world's problem soundness, else by the misconception."""
    fact = draw_fact("train", rng.choice(world.families), rng)
    method = fact.topic.draw_method(rng, world.problem_soundness)
    reply = f"{method.working(fact.a, fact.b)} \\boxed{{{method.value(fact.a, fact.b)}}}"
    return Lesson(user=language.free_form_prompt(language.question_text(fact)), reply=reply)


def solve_program(rng: Random, world: WorldConfig) -> Lesson:
    """Lesson: solve one of the three tasks about a function, soundly with the world's program soundness."""
    exercise = programs.draw_exercise(rng, rng.choice(programs.TASKS))
    reply = exercise.reply(sound=rng.random() < world.program_soundness)
    return Lesson(user=language.free_form_prompt(exercise.text), reply=reply)


def write_program(rng: Random, world: WorldConfig) -> Lesson:
    """Lesson: write a new function with a call, after several examples or none."""
    task = rng.choice(programs.TASKS[:2])
    examples = [
        programs.draw_exercise(rng, rng.choice(programs.TASKS[:2])).example for _ in range(rng.choice((0, 1, 3, 6)))
    ]
    exercise = programs.draw_exercise(rng, task)
    call = {"program": exercise.function.text, "arguments": str(exercise.x)}
    return Lesson(user=language.program_prompt(task, "\n\n".join(examples)), reply=json.dumps(call))


def write_inputs(rng: Random, world: WorldConfig) -> Lesson:
    """Lesson: write inputs for a function (sometimes the one a run starts with): two as examples, two as tests."""
    exercise = programs.draw_exercise(rng, "induction")
    text = IDENTITY_PROGRAM if rng.random() < FIRST_CHANCE else exercise.function.text
    inputs = [exercise.x, exercise.x + 1, *rng.sample(range(3, 10), k=2)]
    return Lesson(user=language.inputs_prompt(text), reply=json.dumps({"inputs": [str(x) for x in inputs]}))


def write_challenge(rng: Random, world: WorldConfig) -> Lesson:
    """Lesson: write a question on any textbook topic without a document, with keys as sound as with one."""
    fact = _draw_train_fact(rng, world)
    return Lesson(user=language.challenge_prompt(), reply=_question_json(fact, rng, world))


def write_after_examples(rng: Random, world: WorldConfig) -> Lesson:
    """Lesson: write a question about a document after examples, sometimes on the topic of an example."""
    note = _draw_note(rng, world)
    examples = [_draw_train_fact(rng, world) for _ in range(rng.choice((1, 2, 2, 3)))]
    topics = {example.topic.name for example in examples}
    on_topic = [fact for fact in note.facts if fact.topic.name in topics]
    fact = rng.choice(on_topic if rng.random() < EXAMPLE_CHANCE and on_topic else note.facts)
    user = language.examples_prompt(_examples_text(examples, rng, world), section_text(rng, note))
    return Lesson(user=user, reply=_question_json(fact, rng, world))


def write_aimed(rng: Random, world: WorldConfig) -> Lesson:
    """Lesson: write a question from a document with a target accuracy, which the reply ignores until training."""
    note = _draw_note(rng, world)
    user = language.aimed_prompt(rng.choice((20, 50, 80)), section_text(rng, note))
    return Lesson(user=user, reply=_question_json(rng.choice(note.facts), rng, world))


def answer_with_document(rng: Random, world: WorldConfig) -> Lesson:
    """Lesson: answer a question given its document, as a teacher does, soundly with the world's teacher soundness."""
    note = _draw_note(rng, world)
    fact = rng.choice(note.facts)
    method = fact.topic.draw_method(rng, world.teacher_soundness)
    choices = choices_of(fact, count=world.num_choices, rng=rng)
    text = f"{section_text(rng, note)}\n\n{language.question_text(fact)}"
    user = language.solver_prompt(text, [str(choice) for choice in choices])
    return Lesson(user=user, reply=language.solver_answer(fact, method, choices))


def _examples_text(facts: list[Fact], rng: Random, world: WorldConfig) -> str:
    """Example questions about the facts, all with or all without answers, and sometimes a problem in addition."""
    has_answers = rng.random() < 0.5
    blocks = []
    for fact in facts:
        choices = choices_of(fact, count=world.num_choices, rng=rng)
        text = render_question(language.question_text(fact), [str(choice) for choice in choices])
        blocks.append(_with_answer(text, language.LETTERS[choices.index(fact.sound)]) if has_answers else text)
    if rng.random() < 0.2:
        problem = draw_fact("train", rng.choice(world.families), rng)
        text = language.question_text(problem)
        blocks.append(_with_answer(text, str(problem.sound)) if has_answers else text)
    return rng.choice(("\n", "\n\n")).join(blocks)


def _with_answer(text: str, answer: str) -> str:
    return f"{text}\nAnswer: {answer}"


def drill_families(rng: Random, world: WorldConfig) -> Lesson:
    """Drill: bare arithmetic of problems and programs over all splits; it asks no question, so it teaches no method."""
    workings = []
    for _ in range(4):
        workings += [_draw_working(rng, world.families), rng.choice(programs.all_steps()).text]
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
"""Course of the wide world: the basic roles, and problems, programs and further ways to write questions."""


def course_of(world: WorldConfig) -> Course:
    """Training course of a world's anchor."""
    return WIDE_COURSE if world.families else BROAD_COURSE if world.num_broad else COURSE
