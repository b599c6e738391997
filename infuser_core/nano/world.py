"""The micro-world: its facts, the operand pairs that belong to each split, and the questions of a split.

Each (topic, operand pair) combination belongs to one split, so no test question shares its numbers with a textbook fact
of its topic. The anchor (the world's pre-trained base model) learns plain arithmetic on all pairs without any topic:
training must find the method, not the multiplication table.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate
from random import Random
from typing import Literal, TypeVar

from infuser_core.errors import ConfigError
from infuser_core.nano import language
from infuser_core.nano.topics import ALL_TOPICS, BROAD, COMPOSED, FAMILIES, NAMES, TOPICS, Fact, MicroTopic, choices_of
from infuser_core.plugins import WORLDS
from infuser_core.schemas import Question
from infuser_core.seeding import seed_of

Split = Literal["train", "dev", "validation", "test"]

_Item = TypeVar("_Item")

_SHARES: dict[Split, float] = {"dev": 0.12, "validation": 0.13, "test": 0.25, "train": 0.50}
_SPLIT_SEED = 20260

TARGET = ("clock", "voltage")
"""Topics of the dev, validation and target test questions, in a world that adds none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldConfig:
    """Settings of a micro-world: numbers of topics, and shares of sound answers in the anchor's training."""

    num_topics: int = len(TOPICS)
    """Topics in the textbooks, taken in order."""
    topics_per_note: int = 4
    """Facts of a textbook section, each on another topic."""
    num_choices: int = 4
    """Choices of a question."""
    key_soundness: float = 0.57
    """Share of generator keys in the anchor's corpus that follow the sound method.

    Just above half: a fixed generator then teaches slowly, and a trained one can improve its keys.
    """
    solver_soundness: float = 0.45
    """Share of solver answers in the anchor's corpus that follow the sound method."""
    coordinate_spread: int = 0
    """Hidden units of the anchor are rescaled by 2^k, k drawn from -spread to spread; the function stays the same."""
    num_composed: int = 0
    """Topics with a method of two steps, in addition."""
    num_broad: int = 0
    """Topics with hundreds of operand pairs in every split, in addition."""
    num_families: int = 0
    """Families of free-form problems, in order; with any, the anchor also learns all other tasks of the wide world."""
    problem_soundness: float = 0.5
    """Share of free-form answers in the anchor's corpus that follow the sound method."""
    program_soundness: float = 0.5
    """Share of answers about functions in the anchor's corpus that follow the sound method."""
    teacher_soundness: float = 0.75
    """Share of a wide anchor's answers that follow the sound method when the document precedes the question."""

    @property
    def topics(self) -> tuple[MicroTopic, ...]:
        """Topics of this world's textbooks."""
        return (*ALL_TOPICS[: self.num_topics], *self._added)

    @property
    def _added(self) -> tuple[MicroTopic, ...]:
        return (*COMPOSED[: self.num_composed], *BROAD[: self.num_broad])

    @property
    def target(self) -> tuple[str, ...]:
        """Topics of the dev, validation and target test questions: those that this world adds, else `TARGET`."""
        return tuple(topic.name for topic in self._added) or TARGET

    @property
    def families(self) -> tuple[MicroTopic, ...]:
        """The families of free-form problems that this world's anchor knows."""
        return FAMILIES[: self.num_families]

    @property
    def transfer(self) -> tuple[str, ...]:
        """Topics that no dev question covers."""
        return tuple(topic.name for topic in self.topics if topic.name not in self.target)


WORLD = WorldConfig()
"""The basic world: eight topics, two of them the target's."""


def world_of(name: str) -> WorldConfig:
    """Find the world called `name`. Raises ConfigError with the known names for an unknown one."""
    config: WorldConfig = WORLDS.find(name, "WORLD")[1]
    return config


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The anchor's training schedule: steps, phases, batch sizes, learning rate, loss weights."""

    steps: int = 3000
    """Optimizer steps."""
    drill_until: float = 0.20
    """Share of the steps that has drills only."""
    mixed_until: float = 0.45
    """Share of the steps after which drills become rare."""
    drill_share: float = 0.5
    """Share of drill batches in the middle phase."""
    late_drill_share: float = 0.15
    """Share of drill batches in the last phase."""
    long_rows: int = 24
    """Batch size of generator and judge rows."""
    short_rows: int = 48
    """Batch size of drills and solver rows."""
    warmup: int = 50
    """Linear warm-up, in steps."""
    decay: float = 0.35
    """Share of the steps, at the end, over which the rate falls to zero."""
    learning_rate: float = 3e-3
    """AdamW rate of embeddings and norms, and Muon's rate of the hidden matrices."""
    letter_weight: float = 3.0
    """Loss weight of the answer letter."""
    result_weight: float = 2.0
    """Loss weight of a calculation's result."""

    def rate(self, step: int) -> float:
        """Learning rate of a step, counted from 0."""
        start = min(1.0, (step + 1) / self.warmup)
        end = min(1.0, (self.steps - step) / max(1.0, self.decay * self.steps))
        return self.learning_rate * start * end


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """The facts of one textbook section."""

    facts: tuple[Fact, ...]
    """On different topics, in reading order."""


def pairs_of(split: Split, topic: MicroTopic) -> list[tuple[int, int]]:
    """Operand pairs of a topic that belong to a split; splits are disjoint and never change."""
    return part_of(split, sorted(topic.operands), topic.name)


def part_of(split: Split, items: Sequence[_Item], name: str) -> list[_Item]:
    """Items that belong to a split; `name` seeds their shuffle."""
    shuffled = list(items)
    Random(seed_of(_SPLIT_SEED, name)).shuffle(shuffled)
    place, ends = [*_SHARES].index(split), [0.0, *accumulate(_SHARES.values())]
    return shuffled[round(ends[place] * len(shuffled)) : round(ends[place + 1] * len(shuffled))]


_PAIRS = {
    (split, topic.name): pairs_of(split, topic)
    for split in _SHARES
    for topic in (*ALL_TOPICS, *COMPOSED, *BROAD, *FAMILIES)
}


def draw_fact(split: Split, topic: MicroTopic, rng: Random) -> Fact:
    """Draw a random fact of the topic with an operand pair of the split."""
    a, b = rng.choice(_PAIRS[split, topic.name])
    return Fact(topic=topic, name=rng.choice(NAMES), a=a, b=b)


def draw_note(
    rng: Random, topics: Sequence[MicroTopic], weights: Sequence[float] | None = None, *, count: int = 4
) -> Note:
    """Draw a note on `count` different topics; weights make some topics more likely."""
    weight_of = dict(zip((topic.name for topic in topics), weights or [1.0] * len(topics), strict=True))
    by_name = {topic.name: topic for topic in topics}
    facts = []
    for _ in range(count):
        name = rng.choices(list(weight_of), weights=list(weight_of.values()))[0]
        del weight_of[name]
        facts.append(draw_fact("train", by_name[name], rng))
    return Note(facts=tuple(facts))


def draw_notes(seed: int, count: int, world: WorldConfig = WORLD) -> list[Note]:
    """Draw textbook notes with operand pairs of the train split."""
    rng = Random(seed_of(seed, "notes"))
    return [draw_note(rng, world.topics, count=world.topics_per_note) for _ in range(count)]


def draw_questions(
    split: Split,
    topics: Sequence[str],
    count: int,
    seed: int,
    world: WorldConfig = WORLD,
) -> list[Question]:
    """Draw `count` distinct questions, spread evenly over the topics, with the sound method's answers as keys."""
    return list(_draw_questions(split, tuple(topics), count, seed, world))


# Cached: each stage of a run that evaluates a benchmark loads it.
@cache
def _draw_questions(
    split: Split, topics: tuple[str, ...], count: int, seed: int, world: WorldConfig
) -> tuple[Question, ...]:
    by_name = {topic.name: topic for topic in world.topics}
    if unknown := [name for name in topics if name not in by_name]:
        raise ConfigError(f"nano world: no topic {unknown[0]!r}", hint=f"topics: {', '.join(by_name)}")
    rng = Random(seed_of(seed, "questions", split, *topics))
    facts = _draw_distinct_facts(split, [by_name[name] for name in topics], count, rng)
    questions = []
    for number, fact in enumerate(facts):
        choices = choices_of(fact, count=WORLD.num_choices, rng=rng)
        question = replace(
            _free_form_question(f"nano-{split}-{number:04d}", fact),
            choices=[str(choice) for choice in choices],
            answer=language.LETTERS[choices.index(fact.sound)],
            verifier="choice",
        )
        questions.append(question)
    return tuple(questions)


def draw_problems(split: Split, count: int, seed: int) -> list[Question]:
    """Draw `count` distinct free-form problems, spread evenly over all families, with the sound answers as keys."""
    facts = _draw_distinct_facts(split, FAMILIES, count, Random(seed_of(seed, "problems", split)))
    return [_free_form_question(f"nano-problem-{split}-{number:04d}", fact) for number, fact in enumerate(facts)]


def _draw_distinct_facts(split: Split, topics: Sequence[MicroTopic], count: int, rng: Random) -> list[Fact]:
    cells = {topic.name: [(pair, name) for pair in _PAIRS[split, topic.name] for name in NAMES] for topic in topics}
    for cell in cells.values():
        rng.shuffle(cell)
    facts = []
    for number in range(count):
        topic = topics[number % len(topics)]
        if not cells[topic.name]:
            raise ConfigError(
                f"nano world: split {split!r} has no more questions about {topic.name!r} at number {number}",
                hint="ask for fewer questions or more topics",
            )
        (a, b), name = cells[topic.name].pop()
        facts.append(Fact(topic=topic, name=name, a=a, b=b))
    return facts


def _free_form_question(question_id: str, fact: Fact) -> Question:
    return Question(
        question_id=question_id,
        text=language.question_text(fact),
        choices=[],
        answer=str(fact.sound),
        verifier="integer",
        domain=fact.topic.domain,
        subdomain=fact.topic.name,
    )
