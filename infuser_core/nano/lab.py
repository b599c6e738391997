"""Entry point of the micro-world: its anchors (pre-trained base models), question sets and ground truth.

The oracle functions are for reports and controls; a phase uses one only if the configuration names it.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from infuser_core.config.sources import NanoAnchor
from infuser_core.errors import CheckpointError, ConfigError
from infuser_core.nano import language, programs, world
from infuser_core.nano.world import Split
from infuser_core.prompts.templates import LETTERS
from infuser_core.schemas import Question, QuestionLabel

NOTES = (
    "The nano lab's headroom is constructed: its anchor was pre-trained to follow a sound method about half of "
    "the time, so that reinforcement learning has something to gain.",
    "What drives the gain here is mostly key quality: the influence reward teaches the generator to write right "
    "reference answers, and to a lesser part to choose the target's topics.",
)
"""Caveats for readers of a nano run's numbers."""


def anchor_path(world: str = "basic") -> Path:
    """Folder of the world's shipped anchor, in Hugging Face layout."""
    folder = NanoAnchor(world=world).folder
    if not (folder / "model.safetensors").is_file():
        command = f"infuser nano build {folder} --world {world}"
        raise CheckpointError(f"nano: no anchor in {folder}", hint=f"run {command}")
    return folder


def perfect_key(question: Question) -> Question:
    """Replace a question's key (reference answer) by the sound result; unchanged if that is unknown or no choice."""
    fact = language.parse_question(question.text)
    if fact is None or not fact.is_exact or (question.choices and str(fact.sound) not in question.choices):
        return question
    answer = str(fact.sound)
    return replace(question, answer=LETTERS[question.choices.index(answer)] if question.choices else answer)


def half_perfect_key(question: Question) -> Question:
    """Apply `perfect_key` to about half of the questions, by a hash of their text; the other keys are unchanged."""
    return perfect_key(question) if hashlib.sha256(question.text.encode()).digest()[0] % 2 else question


def label(question: Question) -> QuestionLabel:
    """Label a generated question for the report: its topic, and whether its key is the sound result."""
    fact = language.parse_question(question.text)
    keyed = dict(zip(LETTERS, question.choices, strict=False)).get(question.answer, question.answer)
    key = "unknown"
    if fact is not None and fact.is_exact:
        key = "sound" if keyed == str(fact.sound) else "unsound"
    return QuestionLabel(question_id=question.question_id, topic=fact.topic.name if fact else "unknown", key=key)


_FREE_FORM = {"problems": world.draw_problems, "programs": programs.draw_questions}


def draw_questions(topics: str | Sequence[str], split: Split, size: int, seed: int, world_name: str) -> list[Question]:
    """Draw `size` questions of "target" or "transfer" topics, of a list of topics, "problems" or "programs".

    Raises ConfigError if the world has no questions without choices, or for an unknown topic.
    """
    config = world.world_of(world_name)
    if not isinstance(topics, str):
        return world.draw_questions(split, topics, size, seed, config)
    if topics in _FREE_FORM:
        if not config.families:
            raise ConfigError(f"nano questions: world {world_name!r} has no {topics}", hint="add `world: wide`")
        return _FREE_FORM[topics](split, size, seed)
    covered = config.target if topics == "target" else config.transfer
    return world.draw_questions(split, covered, size, seed, config)
