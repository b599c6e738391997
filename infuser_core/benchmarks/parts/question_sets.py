"""Question sets: from the micro-world, from files in the layout of the published sets, or sampled from benchmarks."""

import hashlib
import re
import warnings
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache
from random import Random
from types import MappingProxyType
from typing import Any

from infuser_core import plugins
from infuser_core.benchmarks import gpqa_diamond, gsm8k
from infuser_core.benchmarks.parts import fields, validation
from infuser_core.benchmarks.parts.fields import Row
from infuser_core.benchmarks.parts.files import rows_of
from infuser_core.config import shipped
from infuser_core.config.recorded import recorded
from infuser_core.config.run import BenchmarkSettings
from infuser_core.config.sources import BenchmarkQuestions, FileQuestions, MixQuestions, NanoQuestions
from infuser_core.errors import DataWarning, DocumentError
from infuser_core.nano import lab
from infuser_core.prompts.load import LETTERS
from infuser_core.reasoning import answer_of
from infuser_core.schemas import Question
from infuser_core.sealed import digest_of
from infuser_core.seeding import seed_of
from infuser_core.verifiers.parts.extract import boxed
from infuser_core.verifiers.parts.grading import Grading, as_text

Source = NanoQuestions | FileQuestions | BenchmarkQuestions | MixQuestions

# Verifiers of the data sources that the published files name; any other free answer is mathematics.
_VERIFIERS = {"aime": "integer", "aime2024": "integer", "aime2025": "integer", "bbeh": "bbeh", "bbehopen": "bbeh"}
_NEEDED = ("question_id", "question_text", "ground_truth")
_OPTIONAL = (
    "choices", "also_right", "data_source", "verifier", "field", "domain", "subfield", "subdomain",
    "answer_type", "error", "unit",
)  # fmt: skip
_USUAL = {
    "question_text": ("problem", "question", "prompt", "messages"),
    "ground_truth": ("reward_model.ground_truth", "answer", "solution", "completion", "messages"),
}
"""Columns of other layouts, the likeliest first: a refusal proposes them."""
_SPEAKERS = {"question_text": "user", "ground_truth": "assistant"}
_MOST_WORDS = 30
_VERIFIERS_OF_MATH = ("math", "integer")
_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{3,}")
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
    rows = list(rows_of(shipped.find_data_file(source.path)))
    if not rows:
        raise DocumentError(f"{source.path} holds no rows", hint="name a file with questions")
    if source.size is not None and source.size != len(rows):
        raise DocumentError(f"{source.path} has {len(rows)} questions, expected {source.size}", hint="correct `size`")
    questions = [
        question_of(row, f"{source.path}, row {number}", name=str(number), columns=source.columns)
        for number, row in enumerate(rows, 1)
    ]
    _announce_system(source, rows)
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
        return hashlib.sha256(shipped.find_data_file(source.path).read_bytes()).hexdigest()
    except OSError as error:
        raise DocumentError(
            f"cannot read {source.path}: {error.strerror}", hint="correct the path in `data`"
        ) from error


def values_of(source: Source) -> dict[str, Any]:
    """A source's settings without the places of its files, which enter a recipe by content."""
    if isinstance(source, MixQuestions):
        parts = [{**recorded(part), "source": values_of(part.source)} for part in source.parts]
        return {"type": source.type, "parts": parts}
    return recorded(source, without=("path", "paths"))


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


def question_of(row: Row, where: str, *, name: str = "", columns: Mapping[str, str] = MappingProxyType({})) -> Question:
    """One row in the published layout, or with `columns` that name another's; `name` where it has no question_id.

    Of a chat in a mapped column the user's one turn is the question, the assistant's one turn the answer. Raises
    DocumentError naming the row and the field that is missing or of another type.
    """
    try:
        found = {**({"question_id": name} if name else {}), **(_mapped(row, columns) if columns else row)}
        if missing := [field for field in _NEEDED if found.get(field) in (None, "")]:
            raise DocumentError(f"no {missing[0]}; there are {', '.join(fields.paths(row))}", hint=_proposal(row))
        return _typed(found)
    except DocumentError as error:
        raise DocumentError(f"{where}: {error.message}", hint=error.hint) from error


def _mapped(row: Row, columns: Mapping[str, str]) -> Row:
    if unknown := [name for name in columns if name not in (*_NEEDED, *_OPTIONAL)]:
        hint = f"a question has {', '.join((*_NEEDED, *_OPTIONAL))}"
        raise DocumentError(f"columns.{unknown[0]}: no field of a question", hint=hint)
    found = dict(fields.mapped(row, columns, as_written=True))
    for name, role in _SPEAKERS.items():
        said = fields.turns(found[name], role) if name in columns else None
        if said is not None and len(said) != 1:
            hint = f"one of them: `{name}: {columns[name]}.0.content`, its place from 0"
            raise DocumentError(f"{columns[name]} has {len(said)} turns of the {role}", hint=hint)
        found[name] = said[0] if said else found.get(name)
    if "ground_truth" in columns and _verifier(found) != "literal":
        # Some lists have the one answer in a list, which for Python values is another answer.
        found["ground_truth"] = fields.printed(found["ground_truth"])
    solution = fields.only(found.get("ground_truth"))
    if "ground_truth" in columns and isinstance(solution, str) and not _has_choices(found):
        found["ground_truth"] = _final(solution, columns["ground_truth"])
    return found


def _final(text: str, column: str) -> str:
    """The answer of a worked solution: after the mark of GSM8K, in its last box, or announced; or the text itself."""
    text = answer_of(text) or text
    # Authors of solutions draw boxes by `\fbox` as well.
    boxes = text.replace(r"\fbox", r"\boxed")
    answer = text.rpartition(gsm8k.MARK)[2].strip() if gsm8k.MARK in text else boxed(boxes, preset="phrase")
    if not answer and len(_WORD.findall(text)) > _MOST_WORDS:
        wanted = f"an answer, or a solution that ends in \\boxed{{...}} or {gsm8k.MARK}"
        raise fields.refuse(column, wanted, text)
    return answer or text


def _announce_system(source: FileQuestions, rows: Sequence[Row]) -> None:
    """Warn of turns that are no part of a question."""
    column = source.columns.get("question_text")
    chats = (fields.mapped(row, {"": column})[""] for row in rows) if column else ()
    count = sum(bool(fields.turns(chat, "system")) for chat in chats)
    if count:
        text = f"{source.path}: system turns of {count:,} rows are left out: the prompt profile has its own"
        warnings.warn(text, DataWarning, stacklevel=3)


def _proposal(row: Row) -> str:
    """A hint with the likely columns of a row in another layout."""
    there = list(fields.paths(row))
    likely = {name: next((each for each in usual if each in there), "...") for name, usual in _USUAL.items()}
    mapping = ", ".join(f"{name}: {column}" for name, column in likely.items() if name not in there)
    return f"needed: {', '.join(_NEEDED)}; `columns: {{{mapping}}}` reads another layout"


def _typed(row: Row) -> Question:
    name, others = fields.written(row, "question_id"), fields.several(row, "also_right")
    truths = [row["ground_truth"], *others]
    answers = [
        fields.written(row, "ground_truth"),
        *(fields.written({"also_right": it}, "also_right") for it in others),
    ]
    listed = fields.labelled(row, "choices") if _has_choices(row) else {}
    choices, grading = list(listed.values()), _grading(row, answers[0], listed)
    if choices:
        answers = [_letter(truth, text, listed) for truth, text in zip(truths, answers, strict=True)]
    if choices and _plain(row.get("data_source")).startswith("gpqa"):
        # The published rows have the right answer in a fixed place: they are shuffled when they are put to a model.
        places = gpqa_diamond.order(name, count=len(choices))
        choices = [choices[place] for place in places]
        answers = [LETTERS[places.index(LETTERS.index(answer))] for answer in answers]
    if grading.multiple:
        answers = [", ".join(part.strip() for part in answer.split(";")) for answer in answers]
    verifier = "choice" if choices else _verifier(row)
    if verifier in _VERIFIERS_OF_MATH and (printed := next(filter(fields.PRINTED.match, answers), None)):
        raise fields.refuse("ground_truth", "an answer; several are a list, or a column also_right", printed)
    return Question(
        question_id=name,
        text=fields.written(row, "question_text"),
        choices=choices,
        answer=answers[0],
        verifier=verifier,
        domain=fields.label(row, "field") or fields.label(row, "domain"),
        subdomain=fields.label(row, "subfield") or fields.label(row, "subdomain"),
        grading=as_text(replace(grading, also_right=tuple(each for each in answers[1:] if each != answers[0]))),
    )


def _has_choices(row: Row) -> bool:
    """Whether there are any: an empty cell or list is none, nor is a structure that parquet fills with null."""
    choices = row.get("choices")
    return (
        any(each is not None for each in choices.values())
        if isinstance(choices, dict)
        else choices not in (None, "", [])
    )


def _verifier(row: Row) -> str:
    """The shipped verifier of a free answer: the one that the row names, its data source's, or that of mathematics."""
    name = str(row.get("verifier") or "")
    return name if name in _names(plugins.VERIFIERS) else _VERIFIERS.get(_plain(row.get("data_source")), "math")


def _grading(row: Row, truth: str, choices: Collection[str]) -> Grading:
    """Rules for comparing an answer, as far as the row has them: `;` parts an olympiad problem's several answers."""
    route = _route(row)
    if choices:
        return Grading(route=route)
    kind = fields.label(row, "answer_type").lower()
    several = route.startswith("olympiadbench") and ";" in truth
    return Grading(
        route=route,
        answer_type=kind if kind in _KINDS else "",
        multiple=several,
        tolerance=fields.label(row, "error"),
        unit=fields.label(row, "unit").strip("$ "),
    )


def _route(row: Row) -> str:
    """The benchmark that a row says it is from, by data source or domain; empty when it names none."""
    sources = tuple(_plain(row.get(name)) for name in ("data_source", "domain"))
    benchmarks = _names(plugins.BENCHMARKS).items()
    return next((name for name, plain in benchmarks if any(source.startswith(plain) for source in sources)), "")


@cache
def _names(registry: plugins.Registry) -> dict[str, str]:
    """Names of the shipped plug-ins, with their letters and digits: the folder is listed once, not for every row."""
    return {name: _plain(name) for name in registry.names()}


def _plain(name: Any) -> str:
    return "".join(sign for sign in str(name or "").lower() if sign.isalnum())


def _letter(truth: Any, text: str, listed: Mapping[str, str]) -> str:
    """Letter of the choice that is the answer by its text, its place from 0, or its label."""
    labels, choices = list(listed), list(listed.values())
    if not 1 < len(choices) <= len(LETTERS):
        raise DocumentError(f"{len(choices)} choices", hint=f"from 2 to {len(LETTERS)}")
    if choices.count(text) > 1:
        raise DocumentError(f"the answer {truth!r} is several choices", hint="every choice has its own text")
    numbered = labels[0] != LETTERS[0]
    if numbered and text in labels and text in choices and labels.index(text) != choices.index(text):
        raise DocumentError(f"the answer {truth!r} is a choice and the label of another", hint="give letters as labels")
    if text in choices:
        return LETTERS[choices.index(text)]
    if isinstance(truth, int) and not numbered and 0 <= truth < len(choices):
        return LETTERS[truth]
    if (label := text.strip().upper()) in labels:
        return LETTERS[labels.index(label)]
    raise DocumentError(f"the answer {truth!r} is none of the choices", hint="give the text of a choice")
