"""Questions of a benchmark from its files: columns, rows, identifiers and count checked; slow ones are remembered."""

import hashlib
import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, lru_cache
from pathlib import Path

from infuser_core import durable, settings
from infuser_core.benchmarks.parts.files import locate, rows_of, source_of
from infuser_core.benchmarks.parts.spec import Benchmark, DataWarning, Place
from infuser_core.config.run import BenchmarkSettings
from infuser_core.errors import DocumentError
from infuser_core.schemas import Question
from infuser_core.store.recipe import digest_of
from infuser_core.verifiers.parts.grading import grading_of


def cache_folder(name: str, *, of: str = "tests") -> Path:
    """Where a benchmark's unpacked tests, or what else is made from its rows, lie: in the store, safe to delete."""
    return settings.store_root() / "cache" / of / name


def remembered(name: str, files: Sequence[object], make: Callable[[], Sequence[Question]]) -> list[Question]:
    """Result of `make`, from disk when it was made from these files by this code before and its tests are still there.

    `files` identify the state of the files read: JSON values.
    """
    path = (
        cache_folder(name, of="questions") / f"{digest_of([_code(), list(files), str(cache_folder(name))])[:16]}.jsonl"
    )
    if path.is_file():
        known = [Question(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]
        if all(Path(grading_of(question).tests).is_file() for question in known):
            return known
    made = list(make())
    durable.write(path, "".join(json.dumps(asdict(question)) + "\n" for question in made))
    return made


@cache
def _code() -> str:
    """Digest of everything that turns rows into questions."""
    total = hashlib.sha256()
    room = Path(__file__).parent.parent
    tests = room.parent / "verifiers" / "parts"
    for path in sorted([*room.rglob("*.py"), *tests.glob("code_*.py"), tests / "grading.py"]):
        total.update(path.read_bytes())
    return total.hexdigest()


LARGE = 200_000_000
"""Bytes of packed tests that keep a person waiting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """A file as it was when it was read."""

    path: str
    """Where it is."""
    size: int
    """Bytes."""
    changed: int
    """Time of the last change, nanoseconds."""


def load(benchmark: Benchmark, settings: BenchmarkSettings) -> list[Question]:
    """The benchmark's questions in file order. Read once per process, as long as the files stay as they are.

    Raises ConfigError when there are no files, DocumentError naming benchmark, file, row and field for a wrong row;
    another number of questions than expected is a DataWarning.
    """
    stamps = [stamp(path) for path in locate(benchmark, settings)]
    return list(_loaded(benchmark, tuple(stamps)))


def stamp(path: Path) -> Stamp:
    """Identity of a file's present state."""
    state = path.stat()
    return Stamp(path=str(path), size=state.st_size, changed=state.st_mtime_ns)


@lru_cache(maxsize=64)
def _loaded(benchmark: Benchmark, stamps: tuple[Stamp, ...]) -> tuple[Question, ...]:
    files = [Path(stamp.path) for stamp in stamps]
    if benchmark.keep:
        state = [asdict(stamp) for stamp in stamps]
        questions = remembered(benchmark.name, state, lambda: _unpack(benchmark, files))
    else:
        questions = list(read(benchmark, files))
    announce_count(benchmark, len(questions))
    return tuple(questions)


def _unpack(benchmark: Benchmark, files: Sequence[Path]) -> list[Question]:
    """Read what will be kept; where that takes minutes, say so first."""
    size = sum(path.stat().st_size for path in files)
    if size > LARGE:
        text = f"{benchmark.name}: unpacking the tests in {size / 1e9:.1f} GB, once; this takes minutes"
        warnings.warn(text, DataWarning, stacklevel=2)
    return list(read(benchmark, files))


def announce_count(benchmark: Benchmark, found: int) -> None:
    """Warn where the number of questions is not the expected one."""
    if benchmark.rows is not None and found != benchmark.rows:
        counts = f"{found:,} questions, expected {benchmark.rows:,}"
        warnings.warn(f"{benchmark.name}: {counts}: scores do not compare", DataWarning, stacklevel=2)


def read(benchmark: Benchmark, files: Sequence[Path]) -> Iterator[Question]:
    """The files' questions one by one, with unique identifiers."""
    seen: dict[str, tuple[str, int]] = {}
    left_out = again = 0
    for path in files:
        for number, question in _file(benchmark, path):
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
    _announce(benchmark, left_out, "rows are not part of the benchmark and were left out")
    _announce(benchmark, again, "questions stand in the data more than once and are all kept")


def _announce(benchmark: Benchmark, count: int, what: str) -> None:
    if count:
        warnings.warn(f"{benchmark.name}: {count:,} {what}", DataWarning, stacklevel=3)


def _file(benchmark: Benchmark, path: Path) -> Iterator[tuple[int, Question | None]]:
    assert benchmark.read is not None, f"{benchmark.name} reads no rows"
    source, number = source_of(benchmark, path), 0
    for number, row in enumerate(rows_of(path), 1):
        if number == 1:
            _check_columns(benchmark, path, list(row))
        try:
            question = benchmark.read(row, Place(source=source, number=number))
        except DocumentError as error:
            message = f"{benchmark.name}: {path}, row {number}: {error.message}"
            raise DocumentError(message, hint=error.hint) from error
        yield number, question
    if number == 0:
        raise DocumentError(f"{benchmark.name}: {path} holds no rows", hint="fetch the file again")


def _check_columns(benchmark: Benchmark, path: Path, there: Sequence[str]) -> None:
    for names in benchmark.fields:
        if not {*names.split("|")} & {*there}:
            raise DocumentError(
                f"{benchmark.name}: {path}, row 1: no field {names.replace('|', ' or ')}; there are {', '.join(there)}",
                hint=f"expected the rows of {' + '.join(benchmark.repos) or benchmark.name}, split {benchmark.split}",
            )
