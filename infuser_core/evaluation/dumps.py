"""Read answers of other harnesses: lm-eval, lighteval, math-evaluation-harness, MMLU-Pro, LiveCodeBench, Inspect.

The columns of a row identify its format. If a row carries the data set's own row, the benchmark's reader turns that
into a question; otherwise the question is looked up in the benchmark by its identifier.
"""

import struct
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from infuser_core.config.run import BenchmarkSettings
from infuser_core.errors import ConfigError, DataWarning, DocumentError
from infuser_core.evaluation.benchmarks.parts import fields
from infuser_core.evaluation.benchmarks.parts.files import parse_json, rows_of
from infuser_core.evaluation.benchmarks.parts.loader import describe_benchmark, find_benchmark
from infuser_core.evaluation.benchmarks.parts.spec import MOST_WRONG, Benchmark, RowPlace
from infuser_core.prompts.reasoning import announce
from infuser_core.prompts.templates import LETTERS
from infuser_core.schemas import BenchmarkResponse, Question
from infuser_core.verifiers.parts.extract import last_box
from infuser_core.verifiers.parts.grading import Grading, as_text

TEXTS = ("resps", "model_outputs", "generated_text", "output_list", "responses", "response", "generations", "code")
"""Columns with a model's responses; the first that a row has counts."""
FREE = ("math", "integer", "bbeh", "exact")
"""Verifiers of free-form answers."""
Row = Mapping[str, Any]


def read_dump(path: Path, name: str) -> tuple[list[Question], list[BenchmarkResponse]]:
    """Read another harness's file as answers to the benchmark `name`: questions in order, and their responses.

    A row without a readable question or a model's text is left out with a warning. Raises DocumentError if more than
    MOST_WRONG of the rows are left out, and ConfigError for a benchmark that reads no rows.
    """
    benchmark = describe_benchmark(name)
    if benchmark is None:
        raise ConfigError(f"benchmark {name} has no rows of its own", hint="name the data set that was asked")
    questions: dict[str, Question] = {}
    texts_of: dict[str, list[str]] = {}
    filters: set[tuple[str, str]] = set()
    errors: list[DocumentError] = []
    rows = 0
    for number, row in enumerate(_rows(path), 1):
        rows += 1
        try:
            texts = _texts(row)
            question = _read_question(benchmark, row, RowPlace(benchmark=benchmark, source=path.stem, number=number))
        except DocumentError as error:
            errors.append(DocumentError(f"{path}, row {number}: {error.message}", hint=error.hint))
            continue
        if question is None:
            continue
        # lm-eval repeats a sample for every filter that looks at it.
        pair = (question.question_id, str(row.get("filter", "")))
        if "filter" in row and any(each[0] == pair[0] and each != pair for each in filters):
            continue
        filters.add(pair)
        questions[question.question_id] = question
        texts_of.setdefault(question.question_id, []).extend(texts)
    if len(errors) > MOST_WRONG * rows:
        raise DocumentError(f"{errors[0].message} (and {len(errors) - 1:,} more of {rows:,} rows)", hint=errors[0].hint)
    for problem in errors:
        warnings.warn(f"excluded: {problem.message}", DataWarning, stacklevel=2)
    responses = [
        BenchmarkResponse(
            benchmark=name,
            question_id=key,
            sample_index=place,
            response=text,
            finish_reason="stop",
            prompt_tokens=0,  # not counted
            response_tokens=0,
        )
        for key, texts in texts_of.items()
        for place, text in enumerate(texts)
    ]
    return list(questions.values()), responses


def _rows(path: Path) -> Iterator[Row]:
    """Samples of a file: an archive holds Inspect's samples, one file each, or lists of MMLU-Pro's outputs."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            names = sorted(name for name in archive.namelist() if name.endswith(".json"))
            for name in [name for name in names if name.startswith("samples/")] or names:
                samples, halves = parse_json(_member(archive, name).decode("utf-8-sig"))
                announce(path / name, halves)
                yield from samples if isinstance(samples, list) else [samples]
        return
    for row in rows_of(path):
        yield from row["samples"] if isinstance(row.get("samples"), list) and "eval" in row else [row]


_ZSTANDARD = 93
"""Compression method of Inspect's archives, which Python's `zipfile` does not know."""
_HEADER = struct.Struct("<26xHH")
"""A member's header: lengths of its name and of its extra field, then both, then its content."""


def _member(archive: zipfile.ZipFile, name: str) -> bytes:
    """Content of a file of an archive."""
    info = archive.getinfo(name)
    if info.compress_type != _ZSTANDARD:
        return archive.read(name)
    # Imported here: Arrow costs a third of a second.
    from infuser_core.store.tables import decompress_zstd

    assert archive.fp is not None, "opened for reading"
    archive.fp.seek(info.header_offset)
    archive.fp.seek(sum(_HEADER.unpack(archive.fp.read(_HEADER.size))), 1)
    return decompress_zstd(archive.fp.read(info.compress_size))


def _texts(row: Row) -> list[str]:
    """Texts of the model, sample by sample; a sample without a text, as of a refusal or a tool call, is empty."""
    reply, output = row.get("model_response"), row.get("output")
    if isinstance(reply, dict):
        reply_texts = reply.get("text")
    elif isinstance(output, dict):
        reply_texts = [_content((choice.get("message") or {}).get("content")) for choice in output.get("choices") or []]
        if not reply_texts:
            error = row.get("error") or "no output"
            why = error.get("message", "no output") if isinstance(error, dict) else str(error)
            raise DocumentError(f"no answer of the model: {why[:200]}", hint="run what failed again")
    else:
        reply_texts = row.get(next((name for name in TEXTS if row.get(name) is not None), ""))
    texts = [] if reply_texts is None else list(_flat(reply_texts))
    if not texts or not all(isinstance(text, str | None) for text in texts) or _is_likelihood(reply_texts):
        what = "log-likelihoods and no text" if texts else f"no {', '.join(TEXTS)}"
        raise DocumentError(f"the row has {what}", hint="generated answers alone can be scored again")
    return [text or "" for text in texts]


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        for each in value:
            yield from _flat(each)
    else:
        yield value


def _is_likelihood(value: Any) -> bool:
    """Whether lists end in pairs of a log-likelihood and whether its text is the likeliest, also saved as texts."""
    if not isinstance(value, list):
        return False
    if len(value) == 2 and str(value[1]) in ("True", "False") and isinstance(value[0], str | float | int):
        try:
            return float(value[0]) <= 0
        except ValueError:
            return False
    return any(_is_likelihood(each) for each in value)


def _content(value: Any) -> str:
    """Text of a message whose content is one, a list of parts, or null."""
    if isinstance(value, str):
        return value
    return "".join(str(part.get("text") or "") for part in value or [] if isinstance(part, dict))


def _read_question(benchmark: Benchmark, row: Row, place: RowPlace) -> Question | None:
    if "output" in row and "target" in row:
        return _inspect_question(benchmark, row)
    if "model_response" in row and isinstance(row.get("doc"), dict):
        return _lighteval_question(benchmark, row["doc"], place)
    if "gt" in row and "code" in row:
        return _harness_question(benchmark, row)
    doc = row["doc"] if isinstance(row.get("doc"), dict) else row
    if "output_list" in row or benchmark.read_row is None:
        load = find_benchmark(benchmark.name)
        own = {question.question_id: question for question in load(BenchmarkSettings(name=benchmark.name))}
        key = str(doc.get("question_id", doc.get("id", "")))
        if key not in own:
            raise DocumentError(f"{benchmark.name} has no question {key!r}", hint="the data are of another release")
        return own[key]
    return benchmark.read_row(doc, place)


def _lighteval_question(benchmark: Benchmark, doc: Row, place: RowPlace) -> Question:
    """A question of lighteval's details: its choices have letters, unless all are right answers."""
    choices, golds = list(fields.choices_by_label(doc, "choices").values()), _target_list(doc.get("gold_index"))
    if wrong := [gold for gold in golds if not isinstance(gold, int) or not 0 <= gold < len(choices)]:
        raise DocumentError(f"gold_index {wrong[0]!r} is no choice", hint="details of generated answers have some")
    lettered = len(choices) > len({*golds})
    options = _letters(choices) if lettered else choices
    targets = [options[gold] for gold in golds]
    key = fields.read_label(doc, "id") or str(place.number)
    return _make_question(benchmark, key, fields.raw_text(doc, "query"), targets, choices if lettered else [])


def _harness_question(benchmark: Benchmark, row: Row) -> Question:
    """A question of math-evaluation-harness: `gt` has lost units and words, which a box of the solution still has."""
    answer = last_box(fields.read_label(row, "gt_cot")) or fields.raw_text(row, "gt")
    return _make_question(benchmark, fields.raw_text(row, "idx"), fields.raw_text(row, "question"), [answer], [])


def _inspect_question(benchmark: Benchmark, row: Row) -> Question:
    """A question of Inspect's sample."""
    prompt, targets = (
        row.get("input"),
        [fields.raw_text({"target": each}, "target") for each in _target_list(row["target"])],
    )
    text = prompt if isinstance(prompt, str) else _content(prompt[-1].get("content")) if prompt else ""
    choices = list(fields.choices_by_label(row, "choices").values()) if row.get("choices") else []
    return _make_question(benchmark, fields.raw_text(row, "id"), text, targets, choices)


def _target_list(target: Any) -> list[Any]:
    """The targets, any of which is right, as a list; null for an empty one."""
    return target or [None] if isinstance(target, list) else [target]


def _letters(choices: list[str]) -> list[str]:
    """Letters of the choices. Raises DocumentError for more choices than there are letters."""
    if len(choices) > len(LETTERS):
        raise DocumentError(f"{len(choices)} choices", hint=f"questions have at most {len(LETTERS)}")
    return [*LETTERS[: len(choices)]]


def _make_question(benchmark: Benchmark, key: str, text: str, targets: list[str], choices: list[str]) -> Question:
    """A question as a harness saved it: choices are verified by letter, else the benchmark names the verifier."""
    if choices and (wrong := [each for each in targets if each not in _letters(choices)]):
        raise DocumentError(f"target {wrong[0]!r} is no answer", hint="a letter where there are choices")
    free = benchmark.verifier if benchmark.verifier in FREE else "math"
    return Question(
        question_id=key,
        text=text,
        choices=choices,
        answer=targets[0],
        verifier="choice" if choices else free,
        grading=as_text(Grading(route=benchmark.name, also_right=tuple(targets[1:]))),
    )
