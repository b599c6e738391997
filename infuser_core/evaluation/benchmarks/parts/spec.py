"""Descriptions of benchmarks: files, the paper's sampling, and the reading of rows as checked questions."""

import hashlib
import json
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatch
from functools import cache, lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from infuser_core.config.run import BenchmarkSettings
from infuser_core.errors import ConfigError, DataWarning, DocumentError
from infuser_core.evaluation.benchmarks.parts.fields import map_columns
from infuser_core.evaluation.benchmarks.parts.files import rows_of
from infuser_core.schemas import Question
from infuser_core.settings import data_root, store_root
from infuser_core.system import durable
from infuser_core.system.hub import (
    DATA,
    REVISION,
    HubAddress,
    download_snapshot,
    fetch_address,
    find_data,
    is_data,
    stem_and_suffix,
)
from infuser_core.system.sealed import digest_of
from infuser_core.verifiers.parts.grading import Grading, as_text, grading_of

MOST_WRONG = 0.01
"""Largest share of malformed rows that is left out; with more, it is another data set, or the file is broken."""
LARGE = 200_000_000
"""Size of packed tests from which a message announces that unpacking takes minutes, bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPlace:
    """A row's benchmark, source and number."""

    benchmark: "Benchmark"
    source: str
    """Data set's short name, task's folder, or file's stem: it identifies a file of a benchmark."""
    number: int
    """Row within its file, 1-based."""


RowReader = Callable[[Mapping[str, Any], RowPlace], Question | None]
"""Function that makes a question from a row; None for one outside the benchmark; DocumentError names a wrong field."""
Stamp = tuple[str, int, int]
"""State of a file: path, size in bytes, and time of the last change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """Description of one benchmark: the constant `BENCHMARK` of its module."""

    name: str
    """Module name."""
    title: str
    """Name in tables, as the paper prints it."""
    category: str
    """math, general, medical, coding, nano or other."""
    repos: tuple[str, ...]
    """Hugging Face data sets whose rows make it up, in order; empty without one."""
    split: str = "test"
    """Split of the data set."""
    revision: str = REVISION
    """Commit of the data sets that holds the paper's rows, if known."""
    files: tuple[str, ...] = ()
    """Layouts of the split's files in the data set, the preferred one first: glob patterns, separated by blanks."""
    gated: bool = False
    """Whether the data set asks for terms to be accepted and an access token."""
    rows: int | None = None
    """Questions expected; another number is a warning."""
    samples: int = 1
    """Responses per question (appendix: sampling hyperparameters)."""
    max_tokens: int | None = None
    """Response limit, tokens; None leaves it to the run."""
    verifier: str = ""
    """Verifier of its questions; empty if rows differ."""
    fields: tuple[str, ...] = ()
    """Required columns; alternatives joined by `|`."""
    repeats: bool = False
    """Whether the data may repeat a question: its copies become `<id>#2` and are announced, else refused."""
    generated: bool = False
    """Whether its module's `load` also takes a seed that draws other questions, of the same topics in the same places.
    """
    cached: bool = False
    """Whether its questions are cached on disk, because reading the rows takes minutes."""
    read_row: RowReader | None = None
    """Makes a question of a row; None if the module's `load` makes its own."""

    def load(self, settings: BenchmarkSettings) -> list[Question]:
        """Load the questions in file order, from the configured path, the data folder or the hub.

        They are read once per process while the files do not change. A malformed row is left out with a DataWarning
        that names benchmark, file, row and field; an unexpected number of questions gives a DataWarning, too. Raises
        ConfigError when there are no files, DocumentError when more than `MOST_WRONG` of the rows are malformed.
        """
        stamps = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in locate_files(self, settings)]
        return list(_load(self, tuple(stamps), tuple(settings.columns.items())))


def download_files(benchmark: Benchmark, *, local: bool = False) -> list[Path]:
    """Download a benchmark's files: one folder per data set. `local` uses only the hub's cache on this machine.

    Raises ConfigError if they are not available.
    """
    patterns = " ".join(benchmark.files).split()
    token, files = ", HF_TOKEN" if benchmark.gated else "", " or ".join(benchmark.files[:2])
    folder = data_root() / benchmark.name
    remedy = f"check the network{token}; or put {files} into {folder}, or name them in the benchmark's `path`"
    return [
        download_snapshot(
            HubAddress(repo=repo, kind="dataset", revision=benchmark.revision),
            patterns,
            what=f"benchmark {benchmark.name}",
            remedy=remedy,
            local=local,
        )
        for repo in benchmark.repos
    ]


def locate_files(benchmark: Benchmark, settings: BenchmarkSettings, *, local: bool = False) -> list[Path]:
    """Find the files of the benchmark's split, in a fixed order; `local` does not use the network.

    Raises ConfigError when there are none.
    """
    if settings.path:
        return _files_at(benchmark, fetch_address(settings.path))
    if place := find_data(data_root(), benchmark.name):
        return _files_at(benchmark, place)
    if not benchmark.repos:
        raise ConfigError(f"benchmark {benchmark.name}: no path", hint="name the benchmark's file in `path`")
    return [file for folder in download_files(benchmark, local=local) for file in _files_at(benchmark, folder)]


def _files_at(benchmark: Benchmark, place: Path) -> list[Path]:
    if place.is_file():
        return [place]
    if not place.is_dir():
        raise ConfigError(
            f"benchmark {benchmark.name}: path = {str(place)!r}: no such file or folder",
            hint="correct the path; relative ones start where you run",
        )
    files = split_files(benchmark, place)
    if not files:
        raise ConfigError(
            f"benchmark {benchmark.name}: {place} holds no file of its {benchmark.split} split",
            hint=f"expected {' or '.join(benchmark.files) or 'a data file'}, or one {', '.join(DATA)} file",
        )
    return files


def split_files(benchmark: Benchmark, folder: Path) -> list[Path]:
    """Files of the split in a folder: by the data set's layout, else by the split's name, else all data files."""
    # A snapshot of the hub is a folder of links, which are followed; hidden files are no data.
    names = sorted(
        (Path(at) / name).relative_to(folder).as_posix()
        for at, _, files in os.walk(folder, followlinks=True)
        for name in files
        if is_data(name)
    )
    # A benchmark in several data sets has several folders in a local copy: a layout may start anywhere.
    for layout in benchmark.files:
        patterns = [pattern for each in layout.split() for pattern in (each, f"*/{each}")]
        matches = [
            name
            for name in names
            if any(fnmatch(name.lower().removesuffix(".gz"), pattern.lower()) for pattern in patterns)
        ]
        if matches:
            return [folder / name for name in matches]
    of_split = [name for name in names if benchmark.split in stem_and_suffix(name)[0].lower()]
    return [folder / name for name in of_split or names]


def source_of(benchmark: Benchmark, file: Path) -> str:
    """Label of one of a benchmark's files: the data set's short name, a task's folder, or the file's stem."""
    shorts = [repo.split("/")[-1] for repo in benchmark.repos]
    path = file.as_posix().lower()
    matches = [(path.rfind(short.lower()), short) for short in shorts if short.lower() in path]
    if len(shorts) > 1 and matches:
        return max(matches)[1]
    stem, _ = stem_and_suffix(file.name)
    return file.parent.name if stem in ("task", "data") else stem


def make_question(
    place: RowPlace,
    name: str,
    text: str,
    answer: str,
    *,
    choices: Sequence[str] = (),
    domain: str = "",
    subdomain: str = "",
    grading: Grading = Grading(),
) -> Question:
    """Make a question of the benchmark, with its verifier and route; with choices the answer is a letter."""
    return Question(
        question_id=name,
        text=text,
        choices=list(choices),
        answer=answer,
        verifier=place.benchmark.verifier,
        domain=domain,
        subdomain=subdomain,
        grading=as_text(replace(grading, route=place.benchmark.name)),
    )


def cache_folder(name: str, *, kind: str = "tests") -> Path:
    """Folder in the store with a benchmark's unpacked tests or questions, safe to delete."""
    return store_root() / "cache" / kind / name


def load_cached(name: str, stamps: Sequence[Stamp], make: Callable[[], Iterable[Question]]) -> list[Question]:
    """Questions made by `make`, or read from disk if the same code made them from the same files and tests still exist.

    The warnings of reading the rows are repeated every time.
    """
    digest = digest_of([_code_digest(), list(stamps), str(cache_folder(name))])[:16]
    path = cache_folder(name, kind="questions") / f"{digest}.json"
    content = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {"questions": [], "warnings": []}
    questions, lines = [Question(**row) for row in content["questions"]], content["warnings"]
    if not path.is_file() or not all(Path(grading_of(question).tests).is_file() for question in questions):
        size = sum(size for _, size, _ in stamps)
        if size > LARGE:
            text = f"{name}: unpacking the tests in {size / 1e9:.1f} GB, once; this takes minutes"
            warnings.warn(text, DataWarning, stacklevel=2)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", DataWarning)
            questions = list(make())
        lines = [str(each.message) for each in caught if issubclass(each.category, DataWarning)]
        durable.write_json(path, {"questions": [asdict(question) for question in questions], "warnings": lines})
    for text in lines:
        warnings.warn(text, DataWarning, stacklevel=2)
    return questions


@cache
def _code_digest() -> str:
    """Digest of everything that turns rows into questions."""
    total = hashlib.sha256()
    room = Path(__file__).parent.parent
    tests = room.parents[1] / "verifiers" / "parts"
    for path in sorted([*room.rglob("*.py"), *tests.glob("code_*.py"), tests / "grading.py"]):
        total.update(path.read_bytes())
    return total.hexdigest()


@lru_cache(maxsize=64)
def _load(
    benchmark: Benchmark, stamps: tuple[Stamp, ...], columns: tuple[tuple[str, str], ...]
) -> tuple[Question, ...]:
    """The questions of files in this state."""
    files = [Path(path) for path, _, _ in stamps]
    if benchmark.cached and not columns:
        questions = load_cached(benchmark.name, stamps, lambda: read_questions(benchmark, files))
    else:
        questions = list(read_questions(benchmark, files, dict(columns)))
    if benchmark.rows not in (None, len(questions)):
        counts = f"{len(questions):,} questions, expected {benchmark.rows:,}"
        warnings.warn(f"{benchmark.name}: {counts}: scores do not compare", DataWarning, stacklevel=2)
    return tuple(questions)


def read_questions(
    benchmark: Benchmark, files: Sequence[Path], columns: Mapping[str, str] = MappingProxyType({})
) -> Iterator[Question]:
    """Read the questions of files one by one, with unique identifiers; a few malformed rows are reported and left out.

    `columns` maps the names that the benchmark reads to the columns of another layout.
    """
    copies: dict[str, tuple[str, int]] = {}
    wrong: list[DocumentError] = []
    rows = left_out = repeated = 0
    for path in files:
        for number, question in _read_file(benchmark, path, columns):
            rows += 1
            if isinstance(question, DocumentError):
                wrong.append(question)
                continue
            if question is None:
                left_out += 1
                continue
            name = question.question_id
            first, times = copies.get(name, ("", 0))
            here = f"{path}, row {number}"
            if times and not benchmark.repeats:
                raise DocumentError(
                    f"{benchmark.name}: question {name} is in {first} and again in {here}",
                    hint="name the files of one split alone, each once",
                )
            copies[name] = (first or here, times + 1)
            repeated += times > 0
            yield replace(question, question_id=f"{name}#{times + 1}") if times else question
    if len(wrong) > MOST_WRONG * rows:
        others = f" (and {len(wrong) - 1:,} more of {rows:,} rows are wrong)" if len(wrong) > 1 else ""
        raise DocumentError(f"{wrong[0].message}{others}", hint=wrong[0].hint) from wrong[0]
    for error in wrong:
        warnings.warn(f"excluded: {error.message}", DataWarning, stacklevel=2)
    _announce(benchmark, len(wrong), f"of {rows:,} rows are wrong and excluded")
    _announce(benchmark, left_out, "rows are not part of the benchmark and were left out")
    _announce(benchmark, repeated, "questions are in the data more than once and are all kept")


def _announce(benchmark: Benchmark, count: int, what: str) -> None:
    if count:
        warnings.warn(f"{benchmark.name}: {count:,} {what}", DataWarning, stacklevel=3)


def _read_file(
    benchmark: Benchmark, path: Path, columns: Mapping[str, str]
) -> Iterator[tuple[int, Question | DocumentError | None]]:
    """Row numbers, each with its question, its error, or None for a row that is not part of the benchmark."""
    assert benchmark.read_row is not None, f"{benchmark.name} reads no rows"
    source, number = source_of(benchmark, path), 0
    for number, row in enumerate(rows_of(path), 1):
        fields = benchmark.fields if number == 1 else ()
        if absent := [names for names in fields if not {*names.split("|")} & {*row, *columns}]:
            raise DocumentError(
                f"{benchmark.name}: {path}, row 1: no field {absent[0].replace('|', ' or ')}; "
                f"there are {', '.join([*row, *columns])}",
                hint=f"expected the rows of {' + '.join(benchmark.repos) or benchmark.name}, split {benchmark.split}",
            )
        try:
            place = RowPlace(benchmark=benchmark, source=source, number=number)
            # If answers are Python values, a list may be an answer.
            row_in_layout = map_columns(row, columns, as_written=benchmark.verifier == "literal")
            yield number, benchmark.read_row(row_in_layout, place)
        except DocumentError as error:
            yield number, DocumentError(f"{benchmark.name}: {path}, row {number}: {error.message}", hint=error.hint)
    if number == 0:
        raise DocumentError(f"{benchmark.name}: {path} holds no rows", hint="fetch the file again")
