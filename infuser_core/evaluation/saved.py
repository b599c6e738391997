"""Saved answers of an evaluation or of a file, scored under one or several presets, some at a time."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from infuser_core.benchmarks.parts.files import rows_of
from infuser_core.benchmarks.parts.question_sets import question_of
from infuser_core.engines.protocols import ChatModel, Progress, no_progress
from infuser_core.errors import DamagedArtifactError, DocumentError
from infuser_core.evaluation.folder import RECORD, ExamFolder, write_rows
from infuser_core.evaluation.plan import ExamQuestion, Plan, Sheet, exam_question
from infuser_core.evaluation.scores import Counter
from infuser_core.phases.grade import grade
from infuser_core.phases.respond import Key
from infuser_core.schemas import BenchmarkResponse, BenchmarkVerdict, Question, QuestionScore

CHUNK = 512
"""Responses that are held at a time."""

Chunks = Callable[[], Iterator[list[BenchmarkResponse]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """A set of saved answers, ready to be scored as often as wanted."""

    name: str
    """What tables call it."""
    plan: Plan
    """What was asked."""
    chunks: Chunks
    """The answers, some at a time."""
    out: Path
    """Folder that verdicts are written to."""


def is_exam(path: Path) -> bool:
    """Whether the path is the folder of an examination."""
    return (path / RECORD).is_file()


def of_folder(path: Path) -> Answers:
    """The answers of an examination."""
    folder = ExamFolder(path)
    return Answers(name=path.name, plan=folder.plan(), chunks=folder.chunks, out=path / "verdicts")


def of_file(path: Path, questions: Path) -> Answers:
    """Responses in parquet or JSON lines with the columns of BenchmarkResponse, and the questions they answer.

    Raises DocumentError naming the file and what it lacks.
    """
    seen: dict[str, set[int]] = {}
    known = _questions(questions)
    keys: dict[Key, None] = {}
    for row in _responses(path):
        keys[row.benchmark, row.question_id] = None
        seen.setdefault(row.benchmark, set()).add(row.sample_index)
    asked = [_known(known, key, questions) for key in keys]
    sheets = [_sheet(label, asked, len(samples)) for label, samples in seen.items()]
    plan = Plan(sheets=sheets, questions=asked)
    return Answers(
        name=path.stem,
        plan=plan,
        chunks=lambda: in_chunks(_responses(path)),
        out=path.with_name(f"{path.stem}.verdicts"),
    )


def in_chunks(rows: Iterable[BenchmarkResponse]) -> Iterator[list[BenchmarkResponse]]:
    """The rows, `CHUNK` at a time."""
    chunk: list[BenchmarkResponse] = []
    for row in rows:
        chunk.append(row)
        if len(chunk) == CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _responses(path: Path) -> Iterator[BenchmarkResponse]:
    names = [field.name for field in fields(BenchmarkResponse)]
    for number, row in enumerate(rows_of(path), 1):
        missing = [name for name in names if row.get(name) is None]
        if missing:
            hint = f"needed: {', '.join(names)}"
            raise DocumentError(f"{path}, row {number}: no {missing[0]}", hint=hint)
        yield BenchmarkResponse(**{name: row[name] for name in names})


def _questions(path: Path) -> dict[Key, ExamQuestion]:
    """Questions by benchmark and id; those without a benchmark answer to any."""
    found: dict[Key, ExamQuestion] = {}
    for number, row in enumerate(rows_of(path), 1):
        where = f"{path}, row {number}"
        label = str(row.get("benchmark") or "")
        question = _own(row, where) if "verifier" in row else question_of(row, where)
        if (label, question.question_id) in found:
            raise DocumentError(f"{where}: question {question.question_id} twice", hint="identifiers are unique")
        found[label, question.question_id] = exam_question(label, question)
    return found


def _own(row: dict[str, Any], where: str) -> Question:
    values = {field.name: row.get(field.name) for field in fields(Question)}
    for name in ("question_id", "verifier", "answer"):
        if not isinstance(values[name], str) or not values[name]:
            raise DocumentError(
                f"{where}: no {name}", hint="the columns of questions.parquet in an examination's folder"
            )
    choices = [str(choice) for choice in values.pop("choices") or []]
    if isinstance(values["grading"], dict):
        values["grading"] = json.dumps(values["grading"], sort_keys=True)
    return Question(choices=choices, **{name: str(value or "") for name, value in values.items()})


def _known(known: dict[Key, ExamQuestion], key: Key, path: Path) -> ExamQuestion:
    found = known.get(key) or known.get(("", key[1]))
    if found is None:
        raise DocumentError(
            f"{path} has no question {key[1]} of {key[0]}", hint="name the questions that were answered"
        )
    return found if found.benchmark == key[0] else exam_question(key[0], found)


def _sheet(label: str, asked: Sequence[ExamQuestion], samples: int) -> Sheet:
    count = sum(question.benchmark == label for question in asked)
    return Sheet(
        label=label,
        name=label,
        title=label,
        category="",
        samples=samples,
        max_tokens=0,
        num_available=count,
        expected=None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Graded:
    """Some responses with what every preset makes of them."""

    responses: list[BenchmarkResponse]
    """Saved responses."""
    verdicts: dict[str, list[BenchmarkVerdict]]
    """Preset to verdicts, in the order of the responses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """All verdicts of one preset."""

    preset: str
    """The preset."""
    verdicts: list[BenchmarkVerdict]
    """In the order of the plan, then of the samples."""
    questions: list[QuestionScore]
    """One row per question, in the order of the plan."""


def graded(
    answers: Answers, presets: Sequence[str], *, judge: ChatModel | None = None, progress: Progress = no_progress
) -> Iterator[Graded]:
    """The answers with their verdicts. `progress` counts responses, each preset by itself."""
    questions = answers.plan.by_key()
    samples = {sheet.label: sheet.samples for sheet in answers.plan.sheets}
    total = len(presets) * sum(samples[question.benchmark] for question in answers.plan.questions)
    done = 0
    for responses in answers.chunks():
        stranger = next((row for row in responses if (row.benchmark, row.question_id) not in questions), None)
        if stranger is not None:
            raise DamagedArtifactError(
                f"{answers.name}: a response to {stranger.question_id} of {stranger.benchmark}, which was not asked",
                hint="the responses and the questions do not belong together",
            )
        verdicts = {}
        for preset in presets:
            verdicts[preset] = grade(responses, questions, preset=preset, judge=judge)
            done += len(responses)
            progress(done, total, 0)
        yield Graded(responses=responses, verdicts=verdicts)


def score(
    answers: Answers,
    presets: Sequence[str],
    *,
    too_long: str = "wrong",
    judge: ChatModel | None = None,
    progress: Progress = no_progress,
) -> list[Scored]:
    """Every preset's verdicts and question scores."""
    counters = {preset: Counter(answers.plan, too_long=too_long) for preset in presets}
    verdicts: dict[str, list[BenchmarkVerdict]] = {preset: [] for preset in presets}
    for some in graded(answers, presets, judge=judge, progress=progress):
        for preset in presets:
            counters[preset].add(some.responses, some.verdicts[preset])
            verdicts[preset] += some.verdicts[preset]
    places = {key: place for place, key in enumerate(answers.plan.by_key())}
    return [
        Scored(
            preset=preset,
            verdicts=sorted(
                verdicts[preset], key=lambda row: (places[row.benchmark, row.question_id], row.sample_index)
            ),
            questions=counters[preset].questions(),
        )
        for preset in presets
    ]


def save_verdicts(folder: Path, scored: Sequence[Scored], *, judged: bool = False) -> list[Path]:
    """One parquet file per preset; what a judge had a hand in lies apart from what the rules say."""
    paths = []
    for one in scored:
        paths.append(folder / f"{one.preset}{'+judge' if judged else ''}.parquet")
        write_rows(paths[-1], one.verdicts, BenchmarkVerdict)
    return paths
