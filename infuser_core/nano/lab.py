"""Anchors, question sets and ground truth of the micro-world: the package's entry point.

The oracle functions are for reports and controls; a phase uses them only where the configuration names one.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from infuser_core.errors import CheckpointError, ConfigError
from infuser_core.nano import language, programs, world
from infuser_core.nano.world import Split, WorldName
from infuser_core.prompts.load import LETTERS
from infuser_core.schemas import Question, QuestionLabel

_ANCHORS: dict[WorldName, Path] = {
    "basic": Path(__file__).parent / "anchor",
    "hard": Path(__file__).parent / "anchor_hard",
    "strong": Path(__file__).parent / "anchor_strong",
    "wide": Path(__file__).parent / "anchor_wide",
}


def anchor_path(world: WorldName = "basic") -> Path:
    """Folder of the world's shipped anchor, in Hugging Face layout."""
    folder = _ANCHORS[world]
    if not (folder / "model.safetensors").is_file():
        command = f"python -m infuser_core.nano.build {folder} --world {world}"
        raise CheckpointError(f"nano: no anchor in {folder}", hint=f"run {command}")
    return folder


def anchor_card(world: WorldName = "basic") -> dict[str, Any]:
    """How the world's shipped anchor was made, and its measured base rates."""
    card: dict[str, Any] = json.loads((anchor_path(world) / "card.json").read_text(encoding="utf-8"))
    return card


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """What the micro-world says of a question's text."""

    topic: str
    """Topic or family; `program` for expressions."""
    sound: int | None
    """Result of the sound method, None when it has none."""
    tempting: int
    """Result of the misconception."""


def truth(question_text: str) -> Truth | None:
    """What is true of a question as it is written, or None when it is none of the micro-world."""
    if fact := language.parse_question(question_text):
        sound = fact.sound if fact.topic.sound.exact(fact.a, fact.b) else None
        return Truth(topic=fact.topic.name, sound=sound, tempting=fact.tempting)
    if expression := programs.parse_question(question_text):
        return Truth(topic=programs.TOPIC, sound=expression.sound, tempting=expression.tempting)
    return None


def topic_of(question_text: str) -> str | None:
    """Topic of a question, or None when it is none of the micro-world."""
    known = truth(question_text)
    return known.topic if known else None


def sound_answer(question_text: str) -> int | None:
    """Result of the sound method for a question as it is written, or None when it has none."""
    known = truth(question_text)
    return known.sound if known else None


def tempting_answer(question_text: str) -> int | None:
    """Result of the misconception, or None."""
    known = truth(question_text)
    return known.tempting if known else None


def perfect_key(question: Question) -> Question:
    """The question with the sound result as its key; unchanged where choices leave the sound result out."""
    known = sound_answer(question.text)
    if known is None or (question.choices and str(known) not in question.choices):
        return question
    return replace(question, answer=LETTERS[question.choices.index(str(known))] if question.choices else str(known))


def label(question: Question) -> QuestionLabel:
    """What the report says of a generated question: its topic, and whether its key is the sound result."""
    known = sound_answer(question.text)
    keyed = dict(zip(LETTERS, question.choices, strict=False)).get(question.answer, question.answer)
    return QuestionLabel(
        question_id=question.question_id,
        topic=topic_of(question.text) or "unknown",
        key="unknown" if known is None else "sound" if keyed == str(known) else "unsound",
    )


_FREE_FORM = {"problems": world.problems, "programs": programs.questions}


def questions(topics: str, split: Split, size: int, seed: int, name: WorldName) -> list[Question]:
    """`size` questions on target or transfer topics, problems or programs.

    Raises ConfigError when the world's solver cannot answer without choices.
    """
    chosen = world.WORLDS[name]
    if topics in _FREE_FORM:
        if not chosen.families:
            raise ConfigError(f"nano questions: world {name!r} has no {topics}", hint="add `world: wide`")
        return _FREE_FORM[topics](split, size, seed)
    covered = world.TARGET if topics == "target" else chosen.transfer
    return world.questions(split, covered, size, seed, chosen)
