"""Anchors, question sets and ground truth of the micro-world: the package's entry point.

The oracle functions are for reports and controls; a phase uses them only where the configuration names one.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from infuser_core.config.sources import World
from infuser_core.errors import CheckpointError, ConfigError
from infuser_core.nano import language, programs, world
from infuser_core.nano.world import Split
from infuser_core.prompts.load import LETTERS
from infuser_core.schemas import Question, QuestionLabel

NOTES = (
    "The nano lab's headroom is constructed: its anchor was pre-trained to follow a sound method less than half of "
    "the time, so that reinforcement learning has something to gain.",
    "What drives the gain here is mostly key quality: the influence reward teaches the generator to write right "
    "reference answers, and to a lesser part to choose the target's topics.",
)
"""Sentences that a reader of a nano run's numbers has to know."""


def anchor_path(world: World = "basic") -> Path:
    """Folder of the world's shipped anchor, in Hugging Face layout."""
    folder = Path(__file__).parent / ("anchor" if world == "basic" else f"anchor_{world}")
    if not (folder / "model.safetensors").is_file():
        command = f"infuser nano build {folder} --world {world}"
        raise CheckpointError(f"nano: no anchor in {folder}", hint=f"run {command}")
    return folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """The micro-world's answers to a question's text."""

    topic: str
    """Topic or family."""
    sound: int | None
    """Result of the sound method, None when it has none."""
    tempting: int
    """Result of the misconception."""


def truth(question_text: str) -> Truth | None:
    """The truth about a question as it is written, or None when it is none of the micro-world."""
    if fact := language.parse_question(question_text):
        sound = fact.sound if fact.is_exact else None
        return Truth(topic=fact.topic.name, sound=sound, tempting=fact.tempting)
    return None


def perfect_key(question: Question) -> Question:
    """The question with the sound result as its key; unchanged where choices leave the sound result out."""
    known = truth(question.text)
    if known is None or known.sound is None or (question.choices and str(known.sound) not in question.choices):
        return question
    answer = str(known.sound)
    return replace(question, answer=LETTERS[question.choices.index(answer)] if question.choices else answer)


def half_perfect_key(question: Question) -> Question:
    """`perfect_key` for every other question, by its text: half of the wrong keys stay."""
    return perfect_key(question) if hashlib.sha256(question.text.encode()).digest()[0] % 2 else question


def label(question: Question) -> QuestionLabel:
    """Label of a generated question for the report: its topic, and whether its key is the sound result."""
    known = truth(question.text)
    keyed = dict(zip(LETTERS, question.choices, strict=False)).get(question.answer, question.answer)
    key = "unknown"
    if known is not None and known.sound is not None:
        key = "sound" if keyed == str(known.sound) else "unsound"
    return QuestionLabel(question_id=question.question_id, topic=known.topic if known else "unknown", key=key)


_FREE_FORM = {"problems": world.problems, "programs": programs.questions}


def questions(topics: str | Sequence[str], split: Split, size: int, seed: int, name: World) -> list[Question]:
    """`size` questions on target or transfer topics, on those that are named, problems or programs.

    Raises ConfigError when the world's solver cannot answer without choices, or for a topic that it does not have.
    """
    chosen = world.WORLDS[name]
    if not isinstance(topics, str):
        return world.questions(split, topics, size, seed, chosen)
    if topics in _FREE_FORM:
        if not chosen.families:
            raise ConfigError(f"nano questions: world {name!r} has no {topics}", hint="add `world: wide`")
        return _FREE_FORM[topics](split, size, seed)
    covered = world.TARGET if topics == "target" else chosen.transfer
    return world.questions(split, covered, size, seed, chosen)
