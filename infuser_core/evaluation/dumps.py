"""Answers of other harnesses: lm-eval's samples, lighteval's details, MMLU-Pro's and LiveCodeBench's, Inspect's logs.

Their rows are told apart by their columns. A row carries the data set's own row, which the benchmark's reader makes a
question of as it does of the data; only where it does not are the questions the benchmark's own, by identifier.
"""

import json
import struct
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from infuser_core import plugins
from infuser_core.benchmarks.parts.files import rows_of
from infuser_core.benchmarks.parts.spec import MOST_WRONG, Benchmark, Place
from infuser_core.config.run import BenchmarkSettings
from infuser_core.errors import ConfigError, DataWarning, DocumentError
from infuser_core.prompts.load import LETTERS
from infuser_core.schemas import BenchmarkResponse, Question

TEXTS = ("resps", "model_outputs", "generated_text", "output_list", "responses", "response", "generations")
"""Columns with what a model said, the first that is there."""
FREE = ("math", "integer", "bbeh", "exact")
"""Verifiers of answers in text."""
Row = Mapping[str, Any]


def read_dump(path: Path, name: str) -> tuple[list[Question], list[BenchmarkResponse]]:
    """The questions of a dump in order, and their responses, as answers to the benchmark `name`.

    A row whose question cannot be read, or that has no text of a model, is announced and left out. Raises DocumentError
    where more than MOST_WRONG of them are, and ConfigError for a benchmark that reads no rows.
    """
    benchmark = plugins.describe(name)
    if benchmark is None:
        raise ConfigError(f"benchmark {name} has no rows of its own", hint="name the data set that was asked")
    asked: dict[str, Question] = {}
    said: dict[str, list[str]] = {}
    seen: set[tuple[str, str]] = set()
    wrong: list[DocumentError] = []
    rows = 0
    for number, row in enumerate(_rows(path), 1):
        rows += 1
        where = f"{path}, row {number}"
        try:
            texts = _texts(row, where)
            found = _question(benchmark, row, Place(benchmark=benchmark, source=path.stem, number=number), where)
        except DocumentError as error:
            wrong.append(error)
            continue
        if found is None:
            continue
        # lm-eval repeats a sample for every filter that looks at it.
        filtered = (found.question_id, str(row.get("filter", "")))
        if "filter" in row and any(each[0] == filtered[0] and each != filtered for each in seen):
            continue
        seen.add(filtered)
        asked[found.question_id] = found
        said.setdefault(found.question_id, []).extend(texts)
    _exclude(wrong, rows)
    responses = [_response(name, key, place, text) for key, all_ in said.items() for place, text in enumerate(all_)]
    return list(asked.values()), responses


def _exclude(wrong: list[DocumentError], rows: int) -> None:
    if len(wrong) > MOST_WRONG * rows:
        raise DocumentError(f"{wrong[0].message} (and {len(wrong) - 1:,} more of {rows:,} rows)", hint=wrong[0].hint)
    for error in wrong:
        warnings.warn(f"excluded: {error.message}", DataWarning, stacklevel=3)


def _rows(path: Path) -> Iterator[Row]:
    """Samples of a file: an archive holds Inspect's samples, one file each, or lists of MMLU-Pro's outputs."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            names = sorted(name for name in archive.namelist() if name.endswith(".json"))
            for name in [name for name in names if name.startswith("samples/")] or names:
                found = json.loads(_member(archive, name))
                yield from found if isinstance(found, list) else [found]
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
    # Arrow costs a third of a second: only those who need it pay.
    from infuser_core.store.tables import unpacked

    assert archive.fp is not None, "opened for reading"
    archive.fp.seek(info.header_offset)
    archive.fp.seek(sum(_HEADER.unpack(archive.fp.read(_HEADER.size))), 1)
    return unpacked(archive.fp.read(info.compress_size))


def _texts(row: Row, where: str) -> list[str]:
    """Texts of the model, sample by sample."""
    reply = row.get("model_response")
    if isinstance(reply, dict):
        return [str(text) for text in reply.get("text") or []]
    output = row.get("output")
    if isinstance(output, dict):
        said = [_content(choice["message"]["content"]) for choice in output.get("choices") or []]
        if not said:
            why = (row.get("error") or {}).get("message", "no output")
            raise DocumentError(f"{where}: no answer of the model: {why[:200]}", hint="run what failed again")
        return said
    column = next((name for name in TEXTS if row.get(name) is not None), "")
    found = list(_flat(row.get(column)))
    if not found or not all(isinstance(text, str) for text in found):
        told = "log-likelihoods and no text" if found else f"no {', '.join(TEXTS)}"
        raise DocumentError(f"{where} has {told}", hint="generated answers alone can be scored again")
    return found


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        for each in value:
            yield from _flat(each)
    elif value is not None:
        yield value


def _content(value: Any) -> str:
    """Text of a message whose content is one, or a list of parts."""
    if isinstance(value, str):
        return value
    return "".join(str(part.get("text", "")) for part in value if isinstance(part, dict))


def _question(benchmark: Benchmark, row: Row, place: Place, where: str) -> Question | None:
    if "output" in row and "target" in row:
        return _inspected(benchmark, row, where)
    if "model_response" in row and isinstance(row.get("doc"), dict):
        return _detailed(benchmark, row["doc"], place, where)
    doc = row["doc"] if isinstance(row.get("doc"), dict) else row
    if "output_list" in row or benchmark.read is None:
        load = plugins.benchmark(benchmark.name)
        own = {found.question_id: found for found in load(BenchmarkSettings(name=benchmark.name))}
        key = str(doc.get("question_id", doc.get("id", "")))
        if key not in own:
            raise DocumentError(
                f"{where}: {benchmark.name} has no question {key!r}", hint="the data are of another release"
            )
        return own[key]
    return benchmark.read(doc, place)


def _detailed(benchmark: Benchmark, doc: Row, place: Place, where: str) -> Question:
    """A question of lighteval's details: its choices are letters, or the one answer."""
    choices, index = [str(choice) for choice in doc.get("choices") or []], doc.get("gold_index")
    index = index[0] if isinstance(index, list) and index else index
    if not isinstance(index, int) or not 0 <= index < len(choices):
        raise DocumentError(f"{where}: gold_index {index!r} is no choice", hint="details of generated answers have one")
    several = len(choices) > 1
    key, target = str(doc.get("id") or place.number), LETTERS[index] if several else choices[index]
    return _saved(benchmark, key, str(doc.get("query", "")), target, choices if several else [], where)


def _inspected(benchmark: Benchmark, row: Row, where: str) -> Question:
    """A question of Inspect's sample."""
    target = row["target"] if isinstance(row["target"], str) else next(iter(row["target"]), "")
    asked = row.get("input", "")
    text = asked if isinstance(asked, str) else _content(asked[-1].get("content", "")) if asked else ""
    choices = [str(choice) for choice in row.get("choices") or []]
    return _saved(benchmark, str(row.get("id", "")), text, target, choices, where)


def _saved(benchmark: Benchmark, key: str, text: str, target: str, choices: list[str], where: str) -> Question:
    """A question as a harness saved it: choices make it one of letters, else the benchmark says how it is verified."""
    if not target or (choices and target not in LETTERS[: len(choices)]):
        raise DocumentError(f"{where}: target {target!r} is no answer", hint="a letter where there are choices")
    free = benchmark.verifier if benchmark.verifier in FREE else "math"
    verifier = "choice" if choices else free
    return Question(question_id=key, text=text, choices=choices, answer=target, verifier=verifier)


def _response(benchmark: str, key: str, place: int, text: str) -> BenchmarkResponse:
    """Nobody counted its tokens."""
    return BenchmarkResponse(
        benchmark=benchmark,
        question_id=key,
        sample_index=place,
        response=text,
        finish_reason="stop",
        prompt_tokens=0,
        response_tokens=0,
    )
