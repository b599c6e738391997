"""Benchmarks as data: where their files are, how the paper samples them, and how rows become checked questions."""

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

from infuser_core import durable
from infuser_core.benchmarks.parts.fields import mapped
from infuser_core.benchmarks.parts.files import rows_of
from infuser_core.config.run import BenchmarkSettings
from infuser_core.errors import ConfigError, DataWarning, DocumentError
from infuser_core.hub import DATA, REVISION, HubAddress, fetched, find_data, is_data, snapshot, stem_and_suffix
from infuser_core.schemas import Question
from infuser_core.sealed import digest_of
from infuser_core.settings import data_root, store_root
from infuser_core.verifiers.parts.grading import Grading, as_text, grading_of

MOST_WRONG = 0.01
"""Share of wrong rows that a benchmark is used without; with more it is another data set or a broken file."""
LARGE = 200_000_000
"""Bytes of packed tests that keep a person waiting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Place of a row: its benchmark, and where in the files it stands."""

    benchmark: "Benchmark"
    """Benchmark that is read."""
    source: str
    """Data set's short name, task's folder, or file's stem: whatever tells files of one benchmark apart."""
    number: int
    """Row within its file, 1-based."""


RowReader = Callable[[Mapping[str, Any], Place], Question | None]
"""A row to a question; None for a row that is not part of the benchmark; raises DocumentError naming a field."""
Stamp = tuple[str, int, int]
"""State of a file: path, size in bytes, and time of the last change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """One benchmark; the module's `BENCHMARK`."""

    name: str
    """Module name."""
    title: str
    """Name in tables, as the paper prints it."""
    category: str
    """math, general, medical, coding, nano or other."""
    repos: tuple[str, ...]
    """Hugging Face data sets whose rows make it up, in order; empty when it has none."""
    split: str = "test"
    """Split of the data set."""
    revision: str = REVISION
    """Commit of the data sets, where one is known to hold the paper's rows."""
    files: tuple[str, ...] = ()
    """Layouts of the split's files in the data set, the preferred one first: glob patterns, parted by blanks."""
    gated: bool = False
    """Whether the data set asks for terms to be accepted and an access token."""
    rows: int | None = None
    """Questions expected; another number is a warning."""
    samples: int = 1
    """Responses per question (appendix: sampling hyperparameters)."""
    max_tokens: int | None = None
    """Response limit, tokens; None leaves it to the run."""
    verifier: str = ""
    """Verifier of its questions; empty where rows differ."""
    fields: tuple[str, ...] = ()
    """Columns that must be there; alternatives joined by `|`."""
    repeats: bool = False
    """Whether a question may stand in the data twice: `<id>#2` is then kept and announced, else refused."""
    keep: bool = False
    """Whether its questions are kept on disk, because reading the rows takes minutes."""
    read: RowReader | None = None
    """How a row becomes a question; None when the module's `load` makes its own."""

    def load(self, settings: BenchmarkSettings) -> list[Question]:
        """The questions in file order, from the configured path, the data folder or the hub.

        Read once per process, as long as the files stay as they are. A wrong row is left out with a DataWarning that
        names benchmark, file, row and field; so is another number of questions than expected. Raises ConfigError when
        there are no files, DocumentError when more than `MOST_WRONG` of the rows are wrong.
        """
        stamps = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in locate(self, settings)]
        return list(_loaded(self, tuple(stamps), tuple(settings.columns.items())))


def download(benchmark: Benchmark, *, local: bool = False) -> list[Path]:
    """One folder per data set, with the benchmark's files alone; `local` reads the hub's cache on this machine.

    Raises ConfigError when they cannot be had.
    """
    patterns = " ".join(benchmark.files).split()
    token, files = ", HF_TOKEN" if benchmark.gated else "", " or ".join(benchmark.files[:2])
    folder = data_root() / benchmark.name
    remedy = f"check the network{token}; or put {files} into {folder}, or name them in the benchmark's `path`"
    return [
        snapshot(
            HubAddress(repo=repo, kind="dataset", revision=benchmark.revision),
            patterns,
            what=f"benchmark {benchmark.name}",
            remedy=remedy,
            local=local,
        )
        for repo in benchmark.repos
    ]


def locate(benchmark: Benchmark, settings: BenchmarkSettings, *, local: bool = False) -> list[Path]:
    """The files of the benchmark's split, in a fixed order; `local` does not ask the network.

    Raises ConfigError when there are none.
    """
    if settings.path:
        return _named(benchmark, fetched(settings.path))
    if place := find_data(data_root(), benchmark.name):
        return _named(benchmark, place)
    if not benchmark.repos:
        raise ConfigError(f"benchmark {benchmark.name}: no path", hint="name the benchmark's file in `path`")
    return [file for folder in download(benchmark, local=local) for file in _named(benchmark, folder)]


def _named(benchmark: Benchmark, place: Path) -> list[Path]:
    if place.is_file():
        return [place]
    if not place.is_dir():
        raise ConfigError(
            f"benchmark {benchmark.name}: path = {str(place)!r}: no such file or folder",
            hint="correct the path; relative ones start where you run",
        )
    found = files_in(benchmark, place)
    if not found:
        raise ConfigError(
            f"benchmark {benchmark.name}: {place} holds no file of its {benchmark.split} split",
            hint=f"expected {' or '.join(benchmark.files) or 'a data file'}, or one {', '.join(DATA)} file",
        )
    return found


def files_in(benchmark: Benchmark, folder: Path) -> list[Path]:
    """Files of the split: by the data set's own layout, else by the split's name, else all data files there are."""
    # A snapshot of the hub is a folder of links, which are followed; hidden files are nobody's data.
    names = sorted(
        (Path(at) / name).relative_to(folder).as_posix()
        for at, _, files in os.walk(folder, followlinks=True)
        for name in files
        if is_data(name)
    )
    # A benchmark in several data sets has several folders in a local copy: a layout may start anywhere.
    for layout in benchmark.files:
        patterns = [pattern for each in layout.split() for pattern in (each, f"*/{each}")]
        found = [name for name in names if any(fnmatch(_plain(name), pattern.lower()) for pattern in patterns)]
        if found:
            return [folder / name for name in found]
    of_split = [name for name in names if benchmark.split in stem_and_suffix(name)[0].lower()]
    return [folder / name for name in of_split or names]


def _plain(name: str) -> str:
    return name.lower().removesuffix(".gz")


def source_of(benchmark: Benchmark, file: Path) -> str:
    """Label of one of a benchmark's files: the data set's short name, a task's folder, or the file's stem."""
    shorts = [repo.split("/")[-1] for repo in benchmark.repos]
    path = file.as_posix().lower()
    there = [(path.rfind(short.lower()), short) for short in shorts if short.lower() in path]
    if len(shorts) > 1 and there:
        return max(there)[1]
    stem, _ = stem_and_suffix(file.name)
    return file.parent.name if stem in ("task", "data") else stem


def question(
    place: Place,
    name: str,
    text: str,
    answer: str,
    *,
    choices: Sequence[str] = (),
    domain: str = "",
    subdomain: str = "",
    grading: Grading = Grading(),
) -> Question:
    """A question of the benchmark, with its verifier and route; the answer is the letter where there are choices."""
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


def cache_folder(name: str, *, of: str = "tests") -> Path:
    """Folder for a benchmark's unpacked tests, and what else is made from its rows: in the store, safe to delete."""
    return store_root() / "cache" / of / name


def remembered(name: str, stamps: Sequence[Stamp], make: Callable[[], Iterable[Question]]) -> list[Question]:
    """Result of `make`, from disk when it was made from these files by this code before and its tests are still there.

    What was warned of when the rows were read is said every time.
    """
    digest = digest_of([_code(), list(stamps), str(cache_folder(name))])[:16]
    path = cache_folder(name, of="questions") / f"{digest}.json"
    known = _kept(path)
    if known is None:
        size = sum(size for _, size, _ in stamps)
        if size > LARGE:
            text = f"{name}: unpacking the tests in {size / 1e9:.1f} GB, once; this takes minutes"
            warnings.warn(text, DataWarning, stacklevel=2)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", DataWarning)
            made = list(make())
        known = made, [str(each.message) for each in caught if issubclass(each.category, DataWarning)]
        durable.write_json(path, {"questions": [asdict(question) for question in made], "warnings": known[1]})
    for text in known[1]:
        warnings.warn(text, DataWarning, stacklevel=2)
    return known[0]


def _kept(path: Path) -> tuple[list[Question], list[str]] | None:
    """Questions and warnings on disk; None where a test is gone, or the file is."""
    if not path.is_file():
        return None
    found = json.loads(path.read_text(encoding="utf-8"))
    questions = [Question(**row) for row in found["questions"]]
    there = all(Path(grading_of(question).tests).is_file() for question in questions)
    return (questions, found["warnings"]) if there else None


@cache
def _code() -> str:
    """Digest of everything that turns rows into questions."""
    total = hashlib.sha256()
    room = Path(__file__).parent.parent
    tests = room.parent / "verifiers" / "parts"
    for path in sorted([*room.rglob("*.py"), *tests.glob("code_*.py"), tests / "grading.py"]):
        total.update(path.read_bytes())
    return total.hexdigest()


@lru_cache(maxsize=64)
def _loaded(
    benchmark: Benchmark, stamps: tuple[Stamp, ...], columns: tuple[tuple[str, str], ...]
) -> tuple[Question, ...]:
    """The questions of files as they are."""
    files = [Path(path) for path, _, _ in stamps]
    if benchmark.keep and not columns:
        questions = remembered(benchmark.name, stamps, lambda: read(benchmark, files))
    else:
        questions = list(read(benchmark, files, dict(columns)))
    if benchmark.rows not in (None, len(questions)):
        counts = f"{len(questions):,} questions, expected {benchmark.rows:,}"
        warnings.warn(f"{benchmark.name}: {counts}: scores do not compare", DataWarning, stacklevel=2)
    return tuple(questions)


def read(
    benchmark: Benchmark, files: Sequence[Path], columns: Mapping[str, str] = MappingProxyType({})
) -> Iterator[Question]:
    """The files' questions one by one, with unique identifiers; a few wrong rows are announced and left out.

    `columns` names those of another layout by the names that the benchmark reads.
    """
    seen: dict[str, tuple[str, int]] = {}
    wrong: list[DocumentError] = []
    rows = left_out = again = 0
    for path in files:
        for number, question in _file(benchmark, path, columns):
            rows += 1
            if isinstance(question, DocumentError):
                wrong.append(question)
                continue
            if question is None:
                left_out += 1
                continue
            name = question.question_id
            where, times = seen.get(name, ("", 0))
            here = f"{path}, row {number}"
            if times and not benchmark.repeats:
                raise DocumentError(
                    f"{benchmark.name}: question {name} stands in {where} and again in {here}",
                    hint="name the files of one split alone, each once",
                )
            seen[name] = (where or here, times + 1)
            again += times > 0
            yield replace(question, question_id=f"{name}#{times + 1}") if times else question
    _exclude(benchmark, wrong, rows)
    _announce(benchmark, left_out, "rows are not part of the benchmark and were left out")
    _announce(benchmark, again, "questions stand in the data more than once and are all kept")


def _exclude(benchmark: Benchmark, wrong: Sequence[DocumentError], rows: int) -> None:
    """Announce wrong rows by name."""
    if not wrong:
        return
    if len(wrong) > MOST_WRONG * rows:
        others = f" (and {len(wrong) - 1:,} more of {rows:,} rows are wrong)" if len(wrong) > 1 else ""
        raise DocumentError(f"{wrong[0].message}{others}", hint=wrong[0].hint) from wrong[0]
    for error in wrong:
        warnings.warn(f"excluded: {error.message}", DataWarning, stacklevel=3)
    _announce(benchmark, len(wrong), f"of {rows:,} rows are wrong and excluded")


def _announce(benchmark: Benchmark, count: int, what: str) -> None:
    if count:
        warnings.warn(f"{benchmark.name}: {count:,} {what}", DataWarning, stacklevel=3)


def _file(
    benchmark: Benchmark, path: Path, columns: Mapping[str, str]
) -> Iterator[tuple[int, Question | DocumentError | None]]:
    """Row numbers with the question, with what is wrong, or with None for a row of something else."""
    assert benchmark.read is not None, f"{benchmark.name} reads no rows"
    source, number = source_of(benchmark, path), 0
    for number, row in enumerate(rows_of(path), 1):
        if number == 1:
            _check_columns(benchmark, path, [*row, *columns])
        try:
            place = Place(benchmark=benchmark, source=source, number=number)
            # Where answers are Python values, a list is one.
            there = mapped(row, columns, as_written=benchmark.verifier == "literal")
            yield number, benchmark.read(there, place)
        except DocumentError as error:
            yield number, DocumentError(f"{benchmark.name}: {path}, row {number}: {error.message}", hint=error.hint)
    if number == 0:
        raise DocumentError(f"{benchmark.name}: {path} holds no rows", hint="fetch the file again")


def _check_columns(benchmark: Benchmark, path: Path, there: Sequence[str]) -> None:
    for names in benchmark.fields:
        if not {*names.split("|")} & {*there}:
            raise DocumentError(
                f"{benchmark.name}: {path}, row 1: no field {names.replace('|', ' or ')}; there are {', '.join(there)}",
                hint=f"expected the rows of {' + '.join(benchmark.repos) or benchmark.name}, split {benchmark.split}",
            )
