"""The nano lab's front door: where the anchor lies, and what is true in the micro-world.

The oracle functions are for reports and controls; a phase uses them only where the configuration names one.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from infuser_core.errors import CheckpointError
from infuser_core.nano import language
from infuser_core.nano.world import WorldName
from infuser_core.prompts.load import LETTERS
from infuser_core.schemas import Question, QuestionLabel

_ANCHORS: dict[WorldName, Path] = {
    "basic": Path(__file__).parent / "anchor",
    "hard": Path(__file__).parent / "anchor_hard",
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


def topic_of(question_text: str) -> str | None:
    """Topic of a question, or None when it is none of the micro-world."""
    fact = language.parse_question(question_text)
    return fact.topic.name if fact else None


def sound_answer(question_text: str) -> int | None:
    """Result of the sound method for a question as it is written, or None when it has none."""
    fact = language.parse_question(question_text)
    return fact.sound if fact and fact.topic.sound.exact(fact.a, fact.b) else None


def tempting_answer(question_text: str) -> int | None:
    """Result of the misconception, or None."""
    fact = language.parse_question(question_text)
    return fact.tempting if fact else None


def perfect_key(question: Question) -> Question:
    """The question with the sound result as its key; unchanged where no choice is the sound result."""
    known = sound_answer(question.text)
    if known is None or str(known) not in question.choices:
        return question
    return replace(question, answer=LETTERS[question.choices.index(str(known))])


def label(question: Question) -> QuestionLabel:
    """What the report says of a generated question: its topic, and whether its key is the sound result."""
    known = sound_answer(question.text)
    keyed = dict(zip(LETTERS, question.choices, strict=False)).get(question.answer, question.answer)
    return QuestionLabel(
        question_id=question.question_id,
        topic=topic_of(question.text) or "unknown",
        key="unknown" if known is None else "sound" if keyed == str(known) else "unsound",
    )
