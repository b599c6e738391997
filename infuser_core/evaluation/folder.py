"""The folder of an evaluation: saved answers in parts, each complete or absent, under one identity."""

import dataclasses
import fcntl
import hashlib
import itertools
import json
import os
import platform
import typing
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from infuser_core import durable, faults
from infuser_core.errors import BusyRunError, ConfigError, DamagedArtifactError, DocumentError, UsageError
from infuser_core.evaluation.plan import ExamQuestion, Plan, Sheet, differences
from infuser_core.phases.respond import Key
from infuser_core.schemas import BenchmarkResponse
from infuser_core.store import tables
from infuser_core.store.tables import foreign_rows

Row = TypeVar("Row")


def stream_rows(path: Path, row_type: type[Row], *, batch_rows: int = 512) -> Iterator[list[Row]]:
    """The rows in order, at most `batch_rows` at a time. Columns that the row type does not have are passed over.

    Raises DocumentError where the file is no parquet file or lacks a column.
    """
    names = [field.name for field in dataclasses.fields(typing.cast(typing.Any, row_type))]
    rows = foreign_rows(path, at_once=batch_rows, columns=names)
    while batch := list(itertools.islice(rows, batch_rows)):
        missing = [name for name in names if name not in batch[0]]
        if missing:
            raise DocumentError(f"{path} has no column {missing[0]}", hint=f"needed: {', '.join(names)}")
        yield [row_type(**{name: row[name] for name in names}) for row in batch]


RECORD = "evaluation.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class _PartRow:
    """Columns of a response that counting saved parts needs."""

    benchmark: str
    """Benchmark label."""
    question_id: str
    """Question answered."""
    sample_index: int
    """Position among the question's samples."""


class ExamFolder:
    """Saved answers below one path."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._responses = path / "responses"

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Own the folder; the lock dies with its holder.

        Raises BusyRunError while another process lives, UsageError for a folder of something else.
        """
        self._refuse_foreign()
        with _write_errors(self.path):
            self._responses.mkdir(parents=True, exist_ok=True)
            handle = (self.path / ".lock").open("a+")
        with handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                handle.seek(0)
                holder = handle.read().strip() or "another process"
                raise BusyRunError(f"{self.path} is being written by {holder}", hint="wait for it") from error
            handle.truncate(0)
            handle.write(f"process {os.getpid()} on {platform.node()}")
            handle.flush()
            # Whoever left a temporary file behind was killed: the lock is ours.
            for left in self.path.rglob(".*.tmp"):
                left.unlink()
            yield

    def begin(self, identity: Mapping[str, Any], facts: Mapping[str, Any], plan: Plan) -> None:
        """Record what this folder's answers belong to, or check that they belong to the same.

        Raises ConfigError naming both values of what differs.
        """
        if (self.path / RECORD).is_file():
            changed = differences(self.record()["identity"], json.loads(json.dumps(identity)))
            if changed:
                raise ConfigError(
                    f"{self.path} holds answers under other settings: {'; '.join(changed[:3])}",
                    hint="choose another --out, or leave it out: every combination has a folder of its own",
                )
            return
        write_rows(self.path / "questions.parquet", plan.questions, ExamQuestion)
        sheets = [asdict(sheet) for sheet in plan.sheets]
        write_json(self.path / RECORD, {"identity": identity, "sheets": sheets, **facts})

    def _refuse_foreign(self) -> None:
        """Without a record there is nothing, or what a killed process had written before it."""
        if (self.path / RECORD).is_file() or not self.path.is_dir():
            return
        own = ("responses", "questions.parquet")
        foreign = sorted(path.name for path in self.path.iterdir() if path.name not in own and path.name[0] != ".")
        if foreign or self.parts():
            what = ", ".join(foreign[:3]) or "responses without a record"
            raise UsageError(f"{self.path} holds something else: {what}", hint="choose another --out")

    def record(self) -> dict[str, Any]:
        """The record of the examination. Raises UsageError where there is none."""
        try:
            record: dict[str, Any] = json.loads((self.path / RECORD).read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise UsageError(f"{self.path} holds no examination", hint="`infuser eval --out` makes one") from error
        except json.JSONDecodeError as error:
            hint = "move the folder away and run `infuser eval` again"
            raise DamagedArtifactError(f"{self.path / RECORD} is damaged: {error}", hint=hint) from error
        return record

    def plan(self) -> Plan:
        """The recorded questions."""
        sheets = [Sheet(**values) for values in self.record()["sheets"]]
        questions = tables.read_rows(self.path / "questions.parquet", ExamQuestion)
        return Plan(sheets=sheets, questions=questions)

    def add(self, rows: Sequence[BenchmarkResponse]) -> None:
        """Save complete questions: one file, in place or not there at all."""
        keys = sorted({(row.benchmark, row.question_id) for row in rows})
        name = hashlib.sha256(json.dumps(keys).encode()).hexdigest()[:16]
        faults.point("eval:before_part")
        write_rows(self._responses / f"part-{name}.parquet", rows, BenchmarkResponse)
        faults.point("eval:after_part")

    def parts(self) -> list[Path]:
        """Files of saved answers."""
        return sorted(self._responses.glob("part-*.parquet"))

    def finished(self) -> set[Key]:
        """Questions whose answers are saved."""
        seen: set[Key] = set()
        for path in self.parts():
            own = {(row.benchmark, row.question_id) for rows in stream_rows(path, _PartRow) for row in rows}
            if own & seen:
                hint = "move one of the parts that hold it away and run again"
                label, question_id = min(own & seen)
                raise DamagedArtifactError(f"{path} repeats question {question_id} of {label}", hint=hint)
            seen |= own
        return seen

    def chunks(self) -> Iterator[list[BenchmarkResponse]]:
        """Saved answers, a part at a time or less."""
        for path in self.parts():
            yield from stream_rows(path, BenchmarkResponse)

    def note_start(self, *, finished: int, asked: int) -> None:
        """Append to `attempts.jsonl`: questions found finished, and questions that this start asks."""
        with _write_errors(self.path), (self.path / "attempts.jsonl").open("ab") as handle:
            handle.write(json.dumps({"finished": finished, "asked": asked}).encode() + b"\n")


def write_rows(path: Path, rows: Sequence[Any], row_type: type) -> None:
    """A parquet file by one atomic rename."""
    with _write_errors(path.parent), durable.replacing(path) as draft:
        tables.write_rows(draft, rows, row_type)


def write_json(path: Path, value: Any) -> None:
    """A JSON file by one atomic rename."""
    write_text(path, json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """A text file by one atomic rename."""
    with _write_errors(path.parent):
        durable.write(path, text)


def _write_errors(folder: Path) -> AbstractContextManager[None]:
    hint = "free some space or choose another --out; then run the same command again"
    return durable.write_errors(folder, hint=hint)
