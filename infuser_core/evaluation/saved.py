"""Saved answers by name: of an evaluation, a run, an exported folder or a file; and their verdicts by preset."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, get_type_hints

from infuser_core import plugins
from infuser_core.config.overlays import validate
from infuser_core.config.phase_table import Phase
from infuser_core.errors import DocumentError, UsageError, shown
from infuser_core.evaluation.benchmarks.parts.fields import choices_by_label
from infuser_core.evaluation.benchmarks.parts.files import rows_of
from infuser_core.evaluation.benchmarks.parts.question_sets import question_of
from infuser_core.evaluation.dumps import read_dump
from infuser_core.evaluation.evaluate import Key
from infuser_core.evaluation.plan import Plan, Sheet, of_answers
from infuser_core.evaluation.record import Record, folder_of, read_record
from infuser_core.schemas import BenchmarkResponse, BenchmarkVerdict, Question, QuestionScore
from infuser_core.store import runs
from infuser_core.store.catalogue import Catalogue
from infuser_core.store.journal import Journal
from infuser_core.store.recipe import ArtifactRef
from infuser_core.store.recipe import Record as Committed
from infuser_core.store.store import Store
from infuser_core.system.sealed import digest_of_file

RESPONSES, QUESTIONS = "responses.parquet", "questions.parquet"
"""Files of an exported evaluation that it can be scored from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """A set of saved answers in the store, ready to be scored as often as wanted."""

    name: str
    """Name in tables."""
    plan: Plan
    """Everything that was asked."""
    parts: Mapping[str, ArtifactRef]
    """Label in tables to the artifact with the responses."""

    def of(self, wanted: Sequence[str]) -> "Answers":
        """Those to some benchmarks, or all. Raises UsageError for a benchmark that was not answered."""
        unknown = [name for name in wanted if name not in self.parts]
        if unknown:
            raise UsageError(f"no answers to {unknown[0]}", hint=f"there are answers to {', '.join(self.parts)}")
        parts = {label: ref for label, ref in self.parts.items() if not wanted or label in wanted}
        return replace(self, plan=self.plan.of(parts), parts=parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """Saved answers outside the store."""

    name: str
    """Name in tables."""
    digest: str
    """sha256 of the file with the responses."""
    plan: Plan
    """Questions that were answered, in order of their first answer."""
    responses: Mapping[str, Sequence[BenchmarkResponse]]
    """Responses by benchmark label, in the order of the questions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """All verdicts of one preset."""

    preset: str
    """The preset."""
    verdicts: list[BenchmarkVerdict]
    """In the order of the plan, then of the samples."""
    questions: list[QuestionScore]
    """One row per question, in the order of the plan."""


def of_evaluation(store: Store, name: str) -> Answers:
    """The answers of an evaluation. Raises UsageError where it did not come to its end."""
    record = read_record(store.root, name)
    journal = Journal(store.root, name, shelf=runs.EVALUATIONS)
    catalogue = Catalogue(store.root)
    refs = [catalogue.record(entry.key).ref for entry in journal.latest() if entry.phase == Phase.RESPOND]
    parts = {str(store.manifest(ref).summary["label"]): ref for ref in refs}
    missing = [sheet.label for sheet in record.sheets if sheet.label not in parts]
    if missing:
        raise UsageError(f"{name} has no answers to {missing[0]} yet", hint="run the same `infuser eval` to its end")
    ordered = {sheet.label: parts[sheet.label] for sheet in record.sheets}
    return Answers(name=name, plan=Plan(sheets=list(record.sheets), questions=_asked(store, ordered)), parts=ordered)


def of_run(store: Store, name: str) -> Answers:
    """A run's evaluations; benchmarks carry the iteration of the checkpoint: `label@iteration`."""
    config = validate(runs.read_config(store.root, name))
    modules = {benchmark.label or benchmark.name: benchmark.name for benchmark in config.evaluate.benchmarks}
    catalogue = Catalogue(store.root)
    entries = [entry for entry in Journal(store.root, name).latest() if entry.phase == Phase.EVALUATE]
    parts: dict[str, ArtifactRef] = {}
    sheets: list[Sheet] = []
    for entry in sorted(entries, key=lambda entry: entry.iteration):
        responses = catalogue.input(entry.key, "responses")
        manifest = store.manifest(responses)
        plain = str(manifest.summary["label"])
        parts[f"{plain}@{entry.iteration}"] = responses
        sheets.append(_sheet(f"{plain}@{entry.iteration}", modules.get(plain, plain), manifest))
    if not parts:
        raise UsageError(f"run {name} has no evaluation yet", hint=f"`infuser resume {name}` goes on with it")
    return Answers(name=name, plan=Plan(sheets=sheets, questions=_asked(store, parts)), parts=parts)


def _sheet(label: str, module: str, manifest: Committed) -> Sheet:
    known = plugins.describe(module)
    answers = manifest.recipe["config"]["answers"]
    return Sheet(
        label=label,
        name=module,
        title=label,
        category=known.category if known else "",
        samples=int(answers["samples"]),
        max_tokens=int(answers["max_tokens"]),
        num_available=manifest.rows["asked_questions"],
        expected=known.rows if known else None,
    )


def _asked(store: Store, parts: Mapping[str, ArtifactRef]) -> dict[str, list[Question]]:
    return {label: store.rows(ref, "asked_questions", Question) for label, ref in parts.items()}


def read_scored(store: Store, answers: Answers, preset: str, scores: Mapping[str, ArtifactRef]) -> Scored:
    """Verdicts and question scores of one preset from the artifacts that hold them, label by label."""
    return Scored(
        preset=preset,
        verdicts=[
            replace(row, benchmark=label)
            for label in answers.parts
            for row in store.rows(scores[label], "verdicts", BenchmarkVerdict)
        ],
        questions=[
            replace(row, benchmark=label)
            for label in answers.parts
            for row in store.rows(scores[label], "question_scores", QuestionScore)
        ],
    )


def find(store: Store, text: str, questions: Path | None, benchmark: str = "") -> "Answers | Files":
    """The saved answers called `text`: an evaluation, a run, an exported folder, or a file with its questions.

    `benchmark` says that the file is another harness's dump, and whose answers it holds. Raises UsageError when there
    are none.
    """
    path = Path(text)
    own = folder_of(store.root, path.name)
    if text in (path.name, str(own)) and (own / runs.EVALUATION).is_file():
        return of_evaluation(store, path.name)
    if (path / runs.EVALUATION).is_file():
        record = Record.read(path / runs.EVALUATION)
        read = read_file(path / RESPONSES, path / QUESTIONS)
        return _in_files(path.name, path / RESPONSES, *read, record.sheets)
    if path.is_file():
        if questions is not None:
            return _in_files(path.stem, path, *read_file(path, questions))
        if not benchmark:
            hint = "name their file with --questions, or the benchmark of another harness's dump with --benchmark"
            raise UsageError(f"{text}: which questions does it answer?", hint=hint)
        found, responses = read_dump(path, benchmark)
        return _in_files(path.stem, path, {benchmark: found}, {benchmark: responses})
    if run := runs.known_as(store.root, text):
        return of_run(store, run)
    hint = "an evaluation of `infuser eval`, its exported folder, a run, or a file of responses with --questions"
    raise UsageError(f"{text}: no saved answers there", hint=hint)


def _in_files(
    name: str,
    path: Path,
    asked: Mapping[str, Sequence[Question]],
    responses: Mapping[str, Sequence[BenchmarkResponse]],
    sheets: Sequence[Sheet] = (),
) -> Files:
    """Answers that the file at `path` holds, by benchmark label; `sheets` say more of some benchmarks."""
    known = {sheet.label: sheet for sheet in sheets}
    made = [known.get(label) or of_answers(label, each, responses[label]).sheets[0] for label, each in asked.items()]
    plan = Plan(sheets=made, questions=asked)
    return Files(name=name, digest=digest_of_file(path), plan=plan, responses=responses)


def read_file(path: Path, questions: Path) -> tuple[dict[str, list[Question]], dict[str, list[BenchmarkResponse]]]:
    """By benchmark the responses in parquet or JSON lines with the columns of BenchmarkResponse, after their questions.

    Raises DocumentError naming the file and what it lacks.
    """
    known = _questions(questions)
    asked: dict[str, dict[str, Question]] = {}
    rows: dict[str, list[BenchmarkResponse]] = {}
    for row in _responses(path):
        found = _known(known, (row.benchmark, row.question_id), questions)
        asked.setdefault(row.benchmark, {})[row.question_id] = found
        rows.setdefault(row.benchmark, []).append(row)
    ordered = {label: _in_order(list(asked[label]), mine) for label, mine in rows.items()}
    return {label: list(found.values()) for label, found in asked.items()}, ordered


def _in_order(names: Sequence[str], rows: Sequence[BenchmarkResponse]) -> list[BenchmarkResponse]:
    places = {name: place for place, name in enumerate(names)}
    return sorted(rows, key=lambda row: (places[row.question_id], row.sample_index))


def _responses(path: Path) -> Iterator[BenchmarkResponse]:
    kinds = get_type_hints(BenchmarkResponse)
    for number, row in enumerate(rows_of(path), 1):
        missing = [name for name in kinds if row.get(name) is None]
        if missing:
            hint = f"needed: {', '.join(kinds)}"
            raise DocumentError(f"{path}, row {number}: no {missing[0]}", hint=hint)
        for name, kind in kinds.items():
            if not isinstance(row[name], kind) or isinstance(row[name], bool):
                message = f"{path}, row {number}: {name} = {shown(row[name])} is no {kind.__name__}"
                raise DocumentError(message, hint="the types of responses.parquet in an evaluation's folder")
        yield BenchmarkResponse(**{name: row[name] for name in kinds})


def _questions(path: Path) -> dict[Key, Question]:
    """Questions by benchmark and id; those without a benchmark answer to any."""
    found: dict[Key, Question] = {}
    for number, row in enumerate(rows_of(path), 1):
        where = f"{path}, row {number}"
        label = str(row.get("benchmark") or "")
        question = _own(row, where) if "verifier" in row else question_of(row, where)
        if (label, question.question_id) in found:
            raise DocumentError(f"{where}: question {question.question_id} twice", hint="identifiers are unique")
        found[label, question.question_id] = question
    return found


def _own(row: dict[str, Any], where: str) -> Question:
    values = {field.name: row.get(field.name) for field in fields(Question)}
    for name in ("question_id", "verifier", "answer"):
        if not isinstance(values[name], str) or not values[name]:
            raise DocumentError(
                f"{where}: no {name}", hint="the columns of questions.parquet in an evaluation's folder"
            )
    if isinstance(values["grading"], dict):
        values["grading"] = json.dumps(values["grading"], sort_keys=True)
    listed = values.pop("choices")
    try:
        choices = list(choices_by_label(row, "choices").values()) if listed else []
    except DocumentError as error:
        raise DocumentError(f"{where}: {error.message}", hint=error.hint) from error
    other = next((name for name, value in values.items() if not isinstance(value, str | None)), None)
    if other:
        raise DocumentError(f"{where}: {other} = {shown(values[other])} is no text", hint="quote it")
    return Question(choices=choices, **{name: value or "" for name, value in values.items()})


def _known(known: dict[Key, Question], key: Key, path: Path) -> Question:
    found = known.get(key) or known.get(("", key[1]))
    if found is None:
        raise DocumentError(
            f"{path} has no question {key[1]} of {key[0]}", hint="name the questions that were answered"
        )
    return found
