"""The micro-world: which facts exist, which operand pairs each split owns, and the questions of a split.

A split owns (topic, operand pair) combinations, so no test question shares its numbers with a textbook fact of its
topic. Plain arithmetic on all pairs is drilled into the anchor without any topic: what training must find is the
method, not the multiplication table.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

from infuser_core.errors import ConfigError
from infuser_core.nano import language
from infuser_core.nano.topics import ALL_TOPICS, NAMES, TOPICS, Fact, MicroTopic, choices_of
from infuser_core.schemas import Question
from infuser_core.seeding import seed_of

Split = Literal["train", "dev", "validation", "test"]
WorldName = Literal["basic", "hard"]

_SHARES: dict[Split, float] = {"dev": 0.12, "validation": 0.13, "test": 0.25, "train": 0.50}
_SPLIT_SEED = 20260

TARGET = ("clock", "voltage")
"""Topics of the dev, validation and target test questions, in every world."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldConfig:
    """Size and noise of the micro-world."""

    num_topics: int = len(TOPICS)
    """Topics in the textbooks, taken in order."""
    topics_per_note: int = 4
    """Facts of a textbook section, each on another topic."""
    num_choices: int = 4
    """Choices of a question."""
    key_soundness: float = 0.57
    """Share of generator keys in the anchor's corpus that follow the sound method.

    Little more than half: a fixed generator then teaches slowly, and a trained one has its keys to improve.
    """
    solver_soundness: float = 0.45
    """Share of solver answers in the anchor's corpus that follow the sound method."""
    coordinate_spread: int = 0
    """Hidden units of the anchor are rescaled by 2^k, k drawn from -spread to spread; the function stays the same."""

    def __post_init__(self) -> None:
        if not self.topics_per_note <= self.num_topics <= len(ALL_TOPICS):
            sizes = f"{self.topics_per_note} (topics_per_note) to {len(ALL_TOPICS)}"
            raise ConfigError(
                f"nano world: num_topics is {self.num_topics}",
                hint=f"choose from {sizes}, or add to nano/topics.py",
            )

    @property
    def topics(self) -> tuple[MicroTopic, ...]:
        """The topics this world has."""
        return ALL_TOPICS[: self.num_topics]

    @property
    def transfer(self) -> tuple[str, ...]:
        """Topics that no dev question covers."""
        return tuple(topic.name for topic in self.topics if topic.name not in TARGET)


WORLD = WorldConfig()
"""The basic world: eight topics, two of them the target's."""
HARD = WorldConfig(num_topics=len(ALL_TOPICS), key_soundness=0.60, solver_soundness=0.42, coordinate_spread=2)
"""Sixteen topics with the same target, keys that are right half the time, coordinates of unlike scales."""
WORLDS: dict[WorldName, WorldConfig] = {"basic": WORLD, "hard": HARD}
"""Worlds by the name that configurations use."""
TRANSFER = WORLD.transfer
"""Topics of the basic world that no dev question covers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """What one textbook section says."""

    facts: tuple[Fact, ...]
    """Facts on different topics, in reading order."""


def pairs_of(split: Split, topic: MicroTopic) -> list[tuple[int, int]]:
    """The operand pairs of the topic that belong to the split. Disjoint between splits, fixed for good."""
    pairs = sorted(topic.operands)
    Random(seed_of(_SPLIT_SEED, topic.name)).shuffle(pairs)
    start = 0.0
    for name, share in _SHARES.items():
        end = start + share
        if name == split:
            return pairs[round(start * len(pairs)) : round(end * len(pairs))]
        start = end
    raise ConfigError(f"nano world: no split {split!r}", hint=f"one of {', '.join(_SHARES)}")


_PAIRS = {(split, topic.name): pairs_of(split, topic) for split in _SHARES for topic in ALL_TOPICS}


def fact(split: Split, topic: MicroTopic, rng: Random) -> Fact:
    """A random fact of the topic with an operand pair of the split."""
    a, b = rng.choice(_PAIRS[split, topic.name])
    return Fact(topic=topic, name=rng.choice(NAMES), a=a, b=b)


def note(rng: Random, topics: Sequence[MicroTopic], weights: Sequence[float] | None = None, *, count: int = 4) -> Note:
    """A note on `count` different topics; weights make some topics more likely."""
    left = dict(zip((topic.name for topic in topics), weights or [1.0] * len(topics), strict=True))
    by_name = {topic.name: topic for topic in topics}
    chosen = []
    for _ in range(count):
        name = rng.choices(list(left), weights=list(left.values()))[0]
        del left[name]
        chosen.append(fact("train", by_name[name], rng))
    return Note(facts=tuple(chosen))


def notes(seed: int, count: int, world: WorldConfig = WORLD) -> list[Note]:
    """Textbook notes with train operand pairs."""
    rng = Random(seed_of(seed, "notes"))
    return [note(rng, world.topics, count=world.topics_per_note) for _ in range(count)]


def questions(
    split: Literal["dev", "validation", "test"],
    topics: Sequence[str],
    count: int,
    seed: int,
    world: WorldConfig = WORLD,
) -> list[Question]:
    """`count` distinct questions, spread evenly over the topics, answered by the sound method."""
    known = {topic.name: topic for topic in world.topics}
    if unknown := [name for name in topics if name not in known]:
        raise ConfigError(f"nano world: no topic {unknown[0]!r}", hint=f"topics: {', '.join(known)}")
    rng = Random(seed_of(seed, "questions", split, *topics))
    cells = {name: [(pair, who) for pair in _PAIRS[split, name] for who in NAMES] for name in topics}
    for cell in cells.values():
        rng.shuffle(cell)
    return [_question(split, known[topics[i % len(topics)]], cells, i, rng) for i in range(count)]


def _question(
    split: str,
    topic: MicroTopic,
    cells: dict[str, list[tuple[tuple[int, int], str]]],
    number: int,
    rng: Random,
) -> Question:
    if not cells[topic.name]:
        raise ConfigError(
            f"nano world: split {split!r} has no more questions on {topic.name!r} at number {number}",
            hint="ask for fewer questions or more topics",
        )
    (a, b), name = cells[topic.name].pop()
    made = Fact(topic=topic, name=name, a=a, b=b)
    choices = choices_of(made, count=WORLD.num_choices, rng=rng)
    return Question(
        question_id=f"nano-{split}-{number:04d}",
        text=language.question_text(made),
        choices=[str(choice) for choice in choices],
        answer=language.LETTERS[choices.index(made.sound)],
        verifier="choice",
        domain=topic.domain,
        subdomain=topic.name,
        document_id="",
        rollout_id="",
        reasoning="",
    )
