"""Digests of the questions asked, and how much of each benchmark the validation set has seen."""

import hashlib
import json
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from infuser_core.schemas import Leak, Question
from infuser_core.verifiers.parts.grading import as_text, grading_of


def identity(questions: Sequence[Question]) -> str:
    """16 hex digits over the sorted identifiers: two results with the same value are over the same questions."""
    names = sorted(question.question_id for question in questions)
    return hashlib.sha256("\n".join(names).encode()).hexdigest()[:16]


def content(questions: Sequence[Question]) -> str:
    """sha256 over everything the questions say, in order; where a problem's tests lie is not part of it."""
    total = hashlib.sha256()
    for question in questions:
        total.update(json.dumps(asdict(_placeless(question)), sort_keys=True).encode() + b"\n")
    return total.hexdigest()


def _placeless(question: Question) -> Question:
    grading = grading_of(question)
    return replace(question, grading=as_text(replace(grading, tests=""))) if grading.tests else question


MANY_WORDS = 12
"""A text of so many words is a question of its own; below, `which of these is true` needs its choices to tell."""


def key(question: Question) -> str:
    """What two copies of a question share: letters and digits of the text, case and compatibility forms aside.

    Choices count, in any order, where the text alone could be another question's.
    """
    words = _words(question.text)
    if len(words) >= MANY_WORDS or not question.choices:
        return " ".join(words) or question.text.strip()
    return "\x1f".join([" ".join(words), *sorted(" ".join(_words(choice)) or choice for choice in question.choices)])


def _words(text: str) -> list[str]:
    plain = unicodedata.normalize("NFKC", text).casefold()
    return "".join(sign if sign.isalnum() else " " for sign in plain).split()


def leaks(validation: Sequence[Question], benchmarks: Mapping[str, Sequence[Question]]) -> list[Leak]:
    """One row per benchmark, in order: its questions, and those of them that the validation set contains."""
    seen = {key(question) for question in validation}
    found = []
    for label, questions in benchmarks.items():
        count = sum(key(question) in seen for question in questions)
        share = count / len(questions) if questions else 0.0
        found.append(Leak(benchmark=label, num_questions=len(questions), num_seen=count, share=share))
    return found


def whole(found: Sequence[Leak]) -> list[str]:
    """Benchmarks that the validation set contains altogether."""
    return [leak.benchmark for leak in found if leak.num_questions and leak.num_seen == leak.num_questions]


def sentence(found: Sequence[Leak]) -> str:
    """The warning that stands beside the checkpoint's choice; empty when nothing leaks."""
    entire, some = whole(found), [leak for leak in found if leak.num_seen]
    if not some:
        return ""
    seen, asked = sum(leak.num_seen for leak in found), sum(leak.num_questions for leak in found)
    text = f"{seen:,} of {asked:,} benchmark questions are in the validation set that chooses the checkpoint"
    return f"{text}; it contains {', '.join(entire)} whole" if entire else text


@dataclass(frozen=True, slots=True, kw_only=True)
class DevSplit:
    """Both parts of a benchmark, each in its order."""

    dev: list[Question]
    """Questions that are in the dev set."""
    held_out: list[Question]
    """All others."""
    missing: list[str]
    """Identifiers of dev questions that the benchmark does not contain."""


def split(benchmark: Sequence[Question], dev: Sequence[Question], *, domain: str = "") -> DevSplit:
    """Dev members and complement, by identifier or else by text; `domain` narrows the benchmark to one of its domains.

    For the paper's dev set and the domain Science of SuperGPQA: 800 and 9,038 of 9,838.
    """
    among = [question for question in benchmark if domain in ("", question.domain)]
    names, texts = {question.question_id for question in dev}, {key(question) for question in dev}
    inside = [question for question in among if question.question_id in names or key(question) in texts]
    taken = {question.question_id for question in inside}
    known = taken | {key(question) for question in inside}
    return DevSplit(
        dev=inside,
        held_out=[question for question in among if question.question_id not in taken],
        missing=[question.question_id for question in dev if not {question.question_id, key(question)} & known],
    )
