"""Load question sets from a micro-world, from files or rows in the published layout, or sampled from benchmarks."""

import hashlib
import math
import re
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any

from infuser_core.config import shipped
from infuser_core.config.recorded import recorded
from infuser_core.config.run import BenchmarkSettings
from infuser_core.config.sources import BenchmarkQuestions, FileQuestions, MixQuestions, NanoQuestions
from infuser_core.errors import DataWarning, DocumentError, UsageError, abbreviate
from infuser_core.evaluation.benchmarks import gpqa_diamond, gsm8k
from infuser_core.evaluation.benchmarks.parts import fields, validation
from infuser_core.evaluation.benchmarks.parts.fields import Row
from infuser_core.evaluation.benchmarks.parts.files import rows_of
from infuser_core.nano import lab
from infuser_core.plugins import BENCHMARKS, VERIFIERS, Registry
from infuser_core.prompts.reasoning import announce, answer_of, replace_halves
from infuser_core.prompts.templates import LETTERS
from infuser_core.schemas import Question
from infuser_core.seeding import seed_of
from infuser_core.system.sealed import digest_of
from infuser_core.verifiers.parts.extract import boxed
from infuser_core.verifiers.parts.grading import Grading, as_text

Source = NanoQuestions | FileQuestions | BenchmarkQuestions | MixQuestions

# Verifiers of the published files' data sources; any other free answer is mathematics.
_VERIFIERS = {"aime": "integer", "aime2024": "integer", "aime2025": "integer", "bbeh": "bbeh", "bbehopen": "bbeh"}
_REQUIRED = ("question_id", "question_text", "ground_truth")
_OPTIONAL = (
    "choices", "also_right", "data_source", "verifier", "field", "domain", "subfield", "subdomain",
    "answer_type", "error", "unit",
)  # fmt: skip
_LIKELY_COLUMNS = {
    "question_text": ("problem", "question", "prompt", "messages"),
    "ground_truth": ("reward_model.ground_truth", "answer", "solution", "completion", "messages"),
}
"""Columns of other layouts, the likeliest first: an error proposes them."""
_ROLES = {"question_text": "user", "ground_truth": "assistant"}
_MOST_WORDS = 30
_VERIFIERS_OF_MATH = ("math", "integer")
_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{3,}")
_KINDS = ("numerical", "expression", "tuple", "interval", "equation", "set", "text")


def load_questions(source: Source, *, seed: int, evaluated: Sequence[BenchmarkSettings] = ()) -> list[Question]:
    """Load the questions of a source. `seed` matters for micro-worlds only, `evaluated` for samples without leakage.

    Raises DocumentError naming the file and the row if a field is missing or the answer is not a choice.
    """
    if isinstance(source, MixQuestions):
        return _load_mixed(source, seed, evaluated)
    if isinstance(source, BenchmarkQuestions):
        return validation.sample_questions(source, evaluated)
    if isinstance(source, NanoQuestions):
        return lab.draw_questions(source.topics, source.split, source.size, seed, source.world)
    rows = _make_questions(rows_of(shipped.find_data_file(source.path)), source.path, source.columns)
    if source.size not in (None, len(rows)):
        raise DocumentError(f"{source.path} has {len(rows)} questions, expected {source.size}", hint="correct `size`")
    return rows


def parse_columns(pairs: Sequence[str]) -> dict[str, str]:
    """Parse the option --columns: `FIELD=COLUMN`, with a field of a question. Raises UsageError for another form."""
    columns = dict(pair.partition("=")[::2] for pair in pairs)
    for field in [field for field, column in columns.items() if not (field and column)]:
        raise UsageError(f"--columns {abbreviate(field)}: no column", hint="e.g. --columns question_text=problem")
    return columns


def read_questions(questions: str | Path | Iterable[Any], name: str, columns: Mapping[str, str]) -> list[Question]:
    """Read the questions of a file, or of rows in memory: mappings with a file's columns, a table, or `Question`s.

    Errors call rows in memory by `name`. Raises DocumentError as `load_questions` does.
    """
    if isinstance(questions, str | Path):
        return load_questions(FileQuestions(type="file", path=str(questions), columns=dict(columns)), seed=0)
    if hasattr(questions, "__arrow_c_stream__"):
        from infuser_core.store.tables import read_arrow

        questions = read_arrow(questions, name)
    rows, halves = replace_halves(list(questions))
    announce(name, halves)
    return _make_questions(rows, name, columns)


def _make_questions(rows: Iterable[Any], where: str, columns: Mapping[str, str]) -> list[Question]:
    """Make the questions of a file or of rows in memory, which `where` names; those that are questions stay."""
    rows = list(rows)
    if not rows:
        raise DocumentError(f"{where} holds no rows", hint="give at least one question")
    questions = [
        question_of(row, f"{where}, row {number}", name=str(number), columns=columns)
        if not isinstance(row, Question)
        else row
        for number, row in enumerate(rows, 1)
    ]
    column = columns.get("question_text")
    chats = [fields.map_columns(row, {"": column})[""] for row in rows if isinstance(row, dict)] if column else []
    if count := sum(bool(fields.chat_turns(chat, "system")) for chat in chats):
        text = f"{where}: system turns of {count:,} rows are left out: the prompt profile has its own"
        warnings.warn(text, DataWarning, stacklevel=3)
    twice = next((name for name, times in Counter(each.question_id for each in questions).items() if times > 1), None)
    if twice is not None:
        raise DocumentError(f"{where}: question_id {twice} twice", hint="identifiers are unique")
    return questions


def _plain_row(row: Any) -> Row:
    """A row without the types of numpy and pandas, whose empty cells are NaN. Raises DocumentError if it is none."""
    if not isinstance(row, Mapping):
        raise DocumentError(f"{abbreviate(row)} is no object", hint="one object per question")
    cells = {name: cell.tolist() if hasattr(cell, "tolist") else cell for name, cell in row.items()}
    return {name: None if isinstance(cell, float) and math.isnan(cell) else cell for name, cell in cells.items()}


def content_of(source: Source, *, evaluated: Sequence[BenchmarkSettings] = ()) -> str:
    """Digest of a source's questions, independent of the paths of its files. Its settings do not determine it."""
    if isinstance(source, MixQuestions):
        return digest_of([content_of(part.source, evaluated=evaluated) for part in source.parts])
    if isinstance(source, BenchmarkQuestions):
        return validation.content_digest(validation.sample_questions(source, evaluated))
    if isinstance(source, NanoQuestions):
        return digest_of(source.model_dump(mode="json"))
    try:
        return hashlib.sha256(shipped.find_data_file(source.path).read_bytes()).hexdigest()
    except OSError as error:
        raise DocumentError(
            f"cannot read {source.path}: {error.strerror}", hint="correct the path in `data`"
        ) from error


def values_of(source: Source) -> dict[str, Any]:
    """A source's settings without the paths of its files, whose contents a recipe records by `content_of` instead."""
    if isinstance(source, MixQuestions):
        parts = [{**recorded(part), "source": values_of(part.source)} for part in source.parts]
        return {"type": source.type, "parts": parts}
    return recorded(source, without=("path", "paths"))


def is_seeded(source: Source) -> bool:
    """Whether the questions of a source depend on the run's seed."""
    if isinstance(source, MixQuestions):
        return any(is_seeded(part.source) for part in source.parts)
    return source.type == "nano"


def _load_mixed(source: MixQuestions, seed: int, evaluated: Sequence[BenchmarkSettings]) -> list[Question]:
    by_name: dict[str, Question] = {}
    for number, part in enumerate(source.parts):
        questions = load_questions(part.source, seed=seed, evaluated=evaluated)
        if part.count is not None and part.count > len(questions):
            raise DocumentError(
                f"part {number} of a mixed set has {len(questions)} questions, and its `count` is {part.count}",
                hint="lower its `count`",
            )
        if part.count is not None:
            places = Random(seed_of(part.seed, "mix", number)).sample(range(len(questions)), part.count)
            questions = [questions[place] for place in sorted(places)]
        for question in questions:
            name = question.question_id
            name = name if name not in by_name else f"{number}-{name}"
            if name in by_name:
                raise DocumentError(f"a mixed set has the identifier {name} twice", hint="identifiers are unique")
            by_name[name] = replace(question, question_id=name)
    return list(by_name.values())


def question_of(row: Row, where: str, *, name: str = "", columns: Mapping[str, str] = MappingProxyType({})) -> Question:
    """Make a question from a row in the published layout, or another with `columns`; `name` if it has no question_id.

    If a mapped column is a chat, the user's one turn is the question, the assistant's one turn the answer. Raises
    DocumentError naming the row and the field that is missing or of another type.
    """
    try:
        row = _plain_row(row)
        values = {**({"question_id": name} if name else {}), **(_map_columns(row, columns) if columns else row)}
        if missing := [field for field in _REQUIRED if values.get(field) in (None, "")]:
            there = list(fields.column_paths(row))
            likely = {
                name: next((each for each in columns if each in there), "...")
                for name, columns in _LIKELY_COLUMNS.items()
                if name not in there
            }
            mapping = ", ".join(f"{name}: {column}" for name, column in likely.items())
            remedy = f"`columns: {{{mapping}}}` reads another layout" if likely else "fill the empty cell"
            hint = f"needed: {', '.join(_REQUIRED)}; {remedy}"
            raise DocumentError(f"no {missing[0]}; there are {', '.join(there)}", hint=hint)
        return _make_question(values)
    except DocumentError as error:
        raise DocumentError(f"{where}: {error.message}", hint=error.hint) from error


def _map_columns(row: Row, columns: Mapping[str, str]) -> Row:
    if unknown := [name for name in columns if name not in (*_REQUIRED, *_OPTIONAL)]:
        hint = f"a question has {', '.join((*_REQUIRED, *_OPTIONAL))}"
        raise DocumentError(f"columns.{unknown[0]}: no field of a question", hint=hint)
    values = dict(fields.map_columns(row, columns, as_written=True))
    for name, role in _ROLES.items():
        turns = fields.chat_turns(values[name], role) if name in columns else None
        if turns is not None and len(turns) != 1:
            hint = f"one of them: `{name}: {columns[name]}.0.content`, its place from 0"
            raise DocumentError(f"{columns[name]} has {len(turns)} turns of the {role}", hint=hint)
        values[name] = turns[0] if turns else values.get(name)
    if "ground_truth" in columns and _verifier(values) != "literal":
        # Some data sets have the one answer in a list; for answers that are Python values that is another answer.
        values["ground_truth"] = fields.parse_list(values["ground_truth"])
    solution = fields.sole_item(values.get("ground_truth"))
    if "ground_truth" in columns and isinstance(solution, str) and not _has_choices(values):
        values["ground_truth"] = _final_answer(solution, columns["ground_truth"])
    return values


def _final_answer(text: str, column: str) -> str:
    """The answer of a worked solution: after the mark of GSM8K, in its last box, or announced; or the text itself."""
    text = answer_of(text) or text
    # Some solutions use `\fbox` for the box.
    boxes = text.replace(r"\fbox", r"\boxed")
    answer = text.rpartition(gsm8k.MARK)[2].strip() if gsm8k.MARK in text else boxed(boxes, preset="phrase")
    if not answer and len(_WORD.findall(text)) > _MOST_WORDS:
        expected = f"an answer, or a solution that ends in \\boxed{{...}} or {gsm8k.MARK}"
        raise fields.refuse(column, expected, text)
    return answer or text


def _make_question(row: Row) -> Question:
    name, others = fields.raw_text(row, "question_id"), fields.read_list(row, "also_right")
    truths = [row["ground_truth"], *others]
    answers = [
        fields.raw_text(row, "ground_truth"),
        *(fields.raw_text({"also_right": it}, "also_right") for it in others),
    ]
    choices_by_label = fields.choices_by_label(row, "choices") if _has_choices(row) else {}
    choices, grading = list(choices_by_label.values()), _grading(row, answers[0], choices_by_label)
    if choices:
        answers = [_letter(truth, text, choices_by_label) for truth, text in zip(truths, answers, strict=True)]
    if choices and _plain(row.get("data_source")).startswith("gpqa"):
        # The published rows have the right answer in a fixed place: choices are shuffled before a model sees them.
        places = gpqa_diamond.answer_order(name, count=len(choices))
        choices = [choices[place] for place in places]
        answers = [LETTERS[places.index(LETTERS.index(answer))] for answer in answers]
    if grading.multiple:
        answers = [", ".join(part.strip() for part in answer.split(";")) for answer in answers]
    verifier = "choice" if choices else _verifier(row)
    if verifier in _VERIFIERS_OF_MATH and (listing := next(filter(fields.PRINTED_LIST.match, answers), None)):
        raise fields.refuse("ground_truth", "an answer; several are a list, or a column also_right", listing)
    return Question(
        question_id=name,
        text=fields.raw_text(row, "question_text"),
        choices=choices,
        answer=answers[0],
        verifier=verifier,
        domain=fields.read_label(row, "field") or fields.read_label(row, "domain"),
        subdomain=fields.read_label(row, "subfield") or fields.read_label(row, "subdomain"),
        grading=as_text(replace(grading, also_right=tuple(each for each in answers[1:] if each != answers[0]))),
    )


def _has_choices(row: Row) -> bool:
    """Whether a row has choices: an empty cell or list is none, nor is a structure that parquet fills with null."""
    choices = row.get("choices")
    return (
        any(each is not None for each in choices.values())
        if isinstance(choices, dict)
        else choices not in (None, "", [])
    )


def _verifier(row: Row) -> str:
    """Name of a free answer's verifier: that which the row names, its data source's, or that of mathematics."""
    name = str(row.get("verifier") or "")
    return name if name in _names(VERIFIERS) else _VERIFIERS.get(_plain(row.get("data_source")), "math")


def _grading(row: Row, truth: str, choices: Collection[str]) -> Grading:
    """The grading facts of a row; `;` separates several answers of an olympiad problem."""
    # The benchmark that the data source or the domain names.
    sources = tuple(_plain(row.get(name)) for name in ("data_source", "domain"))
    benchmarks = _names(BENCHMARKS).items()
    route = next((name for name, plain in benchmarks if any(source.startswith(plain) for source in sources)), "")
    if choices:
        return Grading(route=route)
    kind = fields.read_label(row, "answer_type").lower()
    several = route.startswith("olympiadbench") and ";" in truth
    return Grading(
        route=route,
        answer_type=kind if kind in _KINDS else "",
        multiple=several,
        tolerance=fields.read_label(row, "error"),
        unit=fields.read_label(row, "unit").strip("$ "),
    )


@cache
def _names(registry: Registry) -> dict[str, str]:
    """Names of the shipped plug-ins, each with its letters and digits only; cached, so the folder is listed once."""
    return {name: _plain(name) for name in registry.names()}


def _plain(name: Any) -> str:
    return "".join(sign for sign in str(name or "").lower() if sign.isalnum())


def _letter(truth: Any, text: str, choices_by_label: Mapping[str, str]) -> str:
    """Letter of the right choice, which a row gives by its text, its index from 0, or its label."""
    labels, choices = list(choices_by_label), list(choices_by_label.values())
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
