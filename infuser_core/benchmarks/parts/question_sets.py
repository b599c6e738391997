"""Question sets: from the micro-world, from files in the layout of the published sets, or sampled from benchmarks."""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from random import Random
from typing import Any

from infuser_core import plugins
from infuser_core.benchmarks import gpqa_diamond
from infuser_core.benchmarks.parts import validation
from infuser_core.benchmarks.parts.files import rows_of
from infuser_core.config import shipped
from infuser_core.config.run import BenchmarkSettings
from infuser_core.config.sources import BenchmarkQuestions, FileQuestions, MixQuestions, NanoQuestions
from infuser_core.errors import DocumentError
from infuser_core.nano import lab
from infuser_core.prompts.load import LETTERS
from infuser_core.schemas import Question
from infuser_core.sealed import digest_of
from infuser_core.seeding import seed_of
from infuser_core.verifiers.parts.grading import Grading, as_text

Source = NanoQuestions | FileQuestions | BenchmarkQuestions | MixQuestions

# Verifiers of the data sources that the published files name; any other free answer is mathematics.
_VERIFIERS = {"aime": "integer", "aime2024": "integer", "aime2025": "integer", "bbeh": "bbeh", "bbehopen": "bbeh"}
_KINDS = ("numerical", "expression", "tuple", "interval", "equation", "set", "text")


def load_questions(source: Source, *, seed: int, evaluated: Sequence[BenchmarkSettings] = ()) -> list[Question]:
    """The questions of a source. `seed` shapes micro-world sets alone; `evaluated`, a sample without leakage.

    Raises DocumentError naming the file and the row when a field is missing or the answer is no choice.
    """
    if isinstance(source, MixQuestions):
        return _mixed(source, seed, evaluated)
    if isinstance(source, BenchmarkQuestions):
        return validation.sample(source, evaluated)
    if isinstance(source, NanoQuestions):
        return lab.questions(source.topics, source.split, source.size, seed, source.world)
    rows = list(rows_of(shipped.data(source.path)))
    if source.size is not None and source.size != len(rows):
        raise DocumentError(f"{source.path} has {len(rows)} questions, expected {source.size}", hint="correct `size`")
    questions = [question_of(row, f"{source.path}, row {number}") for number, row in enumerate(rows, 1)]
    twice = next((name for name, times in Counter(each.question_id for each in questions).items() if times > 1), None)
    if twice is not None:
        raise DocumentError(f"{source.path}: question_id {twice} twice", hint="identifiers are unique")
    return questions


def content_of(source: Source, *, evaluated: Sequence[BenchmarkSettings] = ()) -> str:
    """Digest of what a source gives, wherever its files lie: the part of a recipe that its settings do not say."""
    if isinstance(source, MixQuestions):
        return digest_of([content_of(part.source, evaluated=evaluated) for part in source.parts])
    if isinstance(source, BenchmarkQuestions):
        return validation.content(validation.sample(source, evaluated))
    if isinstance(source, NanoQuestions):
        return digest_of(source.model_dump(mode="json"))
    try:
        return hashlib.sha256(shipped.data(source.path).read_bytes()).hexdigest()
    except OSError as error:
        raise DocumentError(
            f"cannot read {source.path}: {error.strerror}", hint="correct the path in `data`"
        ) from error


def values_of(source: Source) -> dict[str, Any]:
    """A source's settings without the places of its files, which enter a recipe by content."""
    if isinstance(source, MixQuestions):
        parts = [{**part.model_dump(mode="json"), "source": values_of(part.source)} for part in source.parts]
        return {"type": source.type, "parts": parts}
    return source.model_dump(mode="json", exclude={"path", "paths"})


def is_seeded(source: Source) -> bool:
    """Whether the run's seed shapes the questions."""
    if isinstance(source, MixQuestions):
        return any(is_seeded(part.source) for part in source.parts)
    return source.type == "nano"


def _mixed(source: MixQuestions, seed: int, evaluated: Sequence[BenchmarkSettings]) -> list[Question]:
    found: dict[str, Question] = {}
    for number, part in enumerate(source.parts):
        questions = load_questions(part.source, seed=seed, evaluated=evaluated)
        if part.count is not None and part.count > len(questions):
            raise DocumentError(
                f"part {number} of a mixed set has {len(questions)} questions, and {part.count} are wanted",
                hint="lower its `count`",
            )
        if part.count is not None:
            places = Random(seed_of(part.seed, "mix", number)).sample(range(len(questions)), part.count)
            questions = [questions[place] for place in sorted(places)]
        for question in questions:
            name = question.question_id
            name = name if name not in found else f"{number}-{name}"
            if name in found:
                raise DocumentError(f"a mixed set has the identifier {name} twice", hint="identifiers are unique")
            found[name] = replace(question, question_id=name)
    return list(found.values())


def question_of(row: dict[str, Any], where: str) -> Question:
    """One row in the published layout; its answer is matched by text first: choices may themselves be letters."""
    missing = [name for name in ("question_id", "question_text", "ground_truth") if row.get(name) in (None, "")]
    if missing:
        raise DocumentError(f"{where}: no {missing[0]}", hint="needed: question_id, question_text, ground_truth")
    listed = row.get("choices") or []
    choices = [str(choice) for choice in (listed.values() if isinstance(listed, dict) else listed)]
    answer = _letter(row["ground_truth"], choices, where) if choices else str(row["ground_truth"])
    if choices and _plain(row.get("data_source")).startswith("gpqa"):
        # The published rows have the right answer in a fixed place: they are shuffled when they are put to a model.
        places = gpqa_diamond.order(str(row["question_id"]), count=len(choices))
        choices, answer = [choices[place] for place in places], LETTERS[places.index(LETTERS.index(answer))]
    grading = _grading(row)
    return Question(
        question_id=str(row["question_id"]),
        text=str(row["question_text"]),
        choices=choices,
        answer=", ".join(part.strip() for part in answer.split(";")) if grading.multiple else answer,
        verifier="choice" if choices else _verifier(row),
        domain=str(row.get("field") or row.get("domain") or ""),
        subdomain=str(row.get("subfield") or row.get("subdomain") or ""),
        grading=as_text(grading),
    )


def _verifier(row: dict[str, Any]) -> str:
    """The shipped verifier of a free answer: the one that the row names, its data source's, or that of mathematics."""
    told = str(row.get("verifier") or "")
    return told if told in plugins.VERIFIERS.names() else _VERIFIERS.get(_plain(row.get("data_source")), "math")


def _grading(row: dict[str, Any]) -> Grading:
    """Rules for comparing an answer, as far as the row has them: `;` parts an olympiad problem's several answers."""
    route = _route(row)
    if row.get("choices"):
        return Grading(route=route)
    kind = str(row.get("answer_type") or "").lower()
    several = route.startswith("olympiadbench") and ";" in str(row["ground_truth"])
    return Grading(
        route=route,
        answer_type=kind if kind in _KINDS else "",
        multiple=several,
        tolerance=str(row.get("error") or ""),
        unit=str(row.get("unit") or "").strip("$ "),
    )


def _route(row: dict[str, Any]) -> str:
    """The benchmark that a row says it is from, by data source or domain; empty when it names none."""
    told = [_plain(row.get(name)) for name in ("data_source", "domain")]
    return next((name for name in _benchmarks() if any(source.startswith(_plain(name)) for source in told)), "")


@cache
def _benchmarks() -> tuple[str, ...]:
    return tuple(plugins.BENCHMARKS.names())


def _plain(name: Any) -> str:
    return "".join(sign for sign in str(name or "").lower() if sign.isalnum())


def _letter(truth: Any, choices: Sequence[str], where: str) -> str:
    if len(choices) > len(LETTERS):
        raise DocumentError(f"{where}: {len(choices)} choices", hint=f"at most {len(LETTERS)}")
    if choices.count(str(truth)) > 1:
        raise DocumentError(f"{where}: the answer {truth!r} is several choices", hint="every choice has its own text")
    if str(truth) in choices:
        return LETTERS[choices.index(str(truth))]
    if isinstance(truth, int) and 0 <= truth < len(choices):
        return LETTERS[truth]
    if isinstance(truth, str) and truth in LETTERS[: len(choices)] and len(truth) == 1:
        return truth
    raise DocumentError(f"{where}: the answer {truth!r} is none of the choices", hint="give the text of a choice")
