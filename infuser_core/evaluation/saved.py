"""Find saved answers by name, of an evaluation, a run, an exported folder or a file; and read their verdicts."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, get_type_hints

from infuser_core.config.overlays import validate
from infuser_core.config.phase_table import Phase
from infuser_core.errors import DocumentError, UsageError, abbreviate
from infuser_core.evaluation.benchmarks.parts.fields import choices_by_label
from infuser_core.evaluation.benchmarks.parts.files import rows_of
from infuser_core.evaluation.benchmarks.parts.loader import describe_benchmark
from infuser_core.evaluation.benchmarks.parts.question_sets import question_of
from infuser_core.evaluation.dumps import read_dump
from infuser_core.evaluation.evaluate import Key
from infuser_core.evaluation.plan import ExamPlan, Sheet, plan_of_answers
from infuser_core.evaluation.record import EvaluationRecord, read_record, record_folder
from infuser_core.schemas import BenchmarkResponse, BenchmarkVerdict, Question, QuestionScore
from infuser_core.store import runs
from infuser_core.store.catalogue import Catalogue
from infuser_core.store.journal import Journal
from infuser_core.store.recipe import ArtifactRef
from infuser_core.store.recipe import Record as Committed
from infuser_core.store.store import Store
from infuser_core.system.sealed import digest_of_file

RESPONSES, QUESTIONS = "responses.parquet", "questions.parquet"
"""Files of an exported evaluation that hold what scoring needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedAnswers:
    """A set of saved answers in the store."""

    name: str
    """Name in tables."""
    plan: ExamPlan
    parts: Mapping[str, ArtifactRef]
    """Benchmark label to the artifact with the responses."""

    def subset(self, labels: Sequence[str]) -> "SavedAnswers":
        """The answers to these benchmarks, or all if empty. Raises UsageError for a benchmark without answers."""
        unknown = [name for name in labels if name not in self.parts]
        if unknown:
            raise UsageError(f"no answers to {unknown[0]}", hint=f"there are answers to {', '.join(self.parts)}")
        parts = {label: ref for label, ref in self.parts.items() if not labels or label in labels}
        return replace(self, plan=self.plan.subset(parts), parts=parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerFiles:
    """Saved answers outside the store."""

    name: str
    """Name in tables."""
    digest: str
    """sha256 of the file with the responses."""
    plan: ExamPlan
    """Answered questions, in order of their first answer."""
    responses: Mapping[str, Sequence[BenchmarkResponse]]
    """Responses by benchmark label, in the order of the questions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredAnswers:
    """Verdicts and question scores of saved answers under one preset."""

    preset: str
    verdicts: list[BenchmarkVerdict]
    """In the order of the plan, then of the samples."""
    questions: list[QuestionScore]
    """One row per question, in the order of the plan."""


def answers_of_evaluation(store: Store, name: str) -> SavedAnswers:
    """Find the answers of an evaluation. Raises UsageError if it is not complete."""
    record = read_record(store.root, name)
    journal = Journal(store.root, name, shelf=runs.EVALUATIONS)
    catalogue = Catalogue(store.root)
    refs = [catalogue.record(entry.key).ref for entry in journal.latest() if entry.phase == Phase.RESPOND]
    parts = {str(store.manifest(ref).summary["label"]): ref for ref in refs}
    missing = [sheet.label for sheet in record.sheets if sheet.label not in parts]
    if missing:
        raise UsageError(f"{name} has no answers to {missing[0]} yet", hint="run the same `infuser eval` to its end")
    ordered = {sheet.label: parts[sheet.label] for sheet in record.sheets}
    return SavedAnswers(
        name=name, plan=ExamPlan(sheets=list(record.sheets), questions=_questions_of(store, ordered)), parts=ordered
    )


def answers_of_run(store: Store, name: str) -> SavedAnswers:
    """Find the answers of a run's evaluations; benchmarks are labelled by checkpoint: `label@iteration`."""
    config = validate(runs.read_config(store.root, name))
    modules = {benchmark.label or benchmark.name: benchmark.name for benchmark in config.evaluate.benchmarks}
    catalogue = Catalogue(store.root)
    entries = [entry for entry in Journal(store.root, name).latest() if entry.phase == Phase.EVALUATE]
    parts: dict[str, ArtifactRef] = {}
    sheets: list[Sheet] = []
    for entry in sorted(entries, key=lambda entry: entry.iteration):
        responses = catalogue.input_ref(entry.key, "responses")
        manifest = store.manifest(responses)
        plain = str(manifest.summary["label"])
        parts[f"{plain}@{entry.iteration}"] = responses
        sheets.append(_sheet(f"{plain}@{entry.iteration}", modules.get(plain, plain), manifest))
    if not parts:
        raise UsageError(f"run {name} has no evaluation yet", hint=f"`infuser resume {name}` continues it")
    return SavedAnswers(name=name, plan=ExamPlan(sheets=sheets, questions=_questions_of(store, parts)), parts=parts)


def _sheet(label: str, module: str, manifest: Committed) -> Sheet:
    spec = describe_benchmark(module)
    answers = manifest.recipe["config"]["answers"]
    return Sheet(
        label=label,
        name=module,
        title=label,
        category=spec.category if spec else "",
        samples=int(answers["samples"]),
        max_tokens=int(answers["max_tokens"]),
        num_available=manifest.rows["asked_questions"],
        expected=spec.rows if spec else None,
    )


def _questions_of(store: Store, parts: Mapping[str, ArtifactRef]) -> dict[str, list[Question]]:
    return {label: store.rows(ref, "asked_questions", Question) for label, ref in parts.items()}


def read_scores(store: Store, answers: SavedAnswers, preset: str, scores: Mapping[str, ArtifactRef]) -> ScoredAnswers:
    """Read verdicts and question scores of one preset from their artifacts, label by label."""
    return ScoredAnswers(
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


def find_answers(store: Store, text: str, questions: Path | None, benchmark: str = "") -> "SavedAnswers | AnswerFiles":
    """Find the saved answers called `text`: an evaluation, a run, an exported folder, or a file with its questions.

    `benchmark` names the benchmark of another harness's dump. Raises UsageError if there are none.
    """
    path = Path(text)
    own = record_folder(store.root, path.name)
    if text in (path.name, str(own)) and (own / runs.EVALUATION).is_file():
        return answers_of_evaluation(store, path.name)
    if (path / runs.EVALUATION).is_file():
        record = EvaluationRecord.read(path / runs.EVALUATION)
        contents = read_answer_file(path / RESPONSES, path / QUESTIONS)
        return _answer_files(path.name, path / RESPONSES, *contents, record.sheets)
    if path.is_file():
        if questions is not None:
            return _answer_files(path.stem, path, *read_answer_file(path, questions))
        if not benchmark:
            hint = "name their file with --questions, or the benchmark of another harness's dump with --benchmark"
            raise UsageError(f"{text}: which questions does it answer?", hint=hint)
        dump_questions, responses = read_dump(path, benchmark)
        return _answer_files(path.stem, path, {benchmark: dump_questions}, {benchmark: responses})
    if run := runs.match_run(store.root, text):
        return answers_of_run(store, run)
    hint = "an evaluation of `infuser eval`, its exported folder, a run, or a file of responses with --questions"
    raise UsageError(f"{text}: no saved answers there", hint=hint)


def _answer_files(
    name: str,
    path: Path,
    questions: Mapping[str, Sequence[Question]],
    responses: Mapping[str, Sequence[BenchmarkResponse]],
    sheets: Sequence[Sheet] = (),
) -> AnswerFiles:
    """Answers of the file at `path` by benchmark label; `sheets` describe some of the benchmarks."""
    by_label = {sheet.label: sheet for sheet in sheets}
    all_sheets = [
        by_label.get(label) or plan_of_answers(label, each, responses[label]).sheets[0]
        for label, each in questions.items()
    ]
    plan = ExamPlan(sheets=all_sheets, questions=questions)
    return AnswerFiles(name=name, digest=digest_of_file(path), plan=plan, responses=responses)


def read_answer_file(
    path: Path, questions: Path
) -> tuple[dict[str, list[Question]], dict[str, list[BenchmarkResponse]]]:
    """Read questions and responses by benchmark; responses are parquet or JSON lines of BenchmarkResponse's columns.

    Raises DocumentError naming the file and what it lacks.
    """
    by_key = _read_questions(questions)
    by_label: dict[str, dict[str, Question]] = {}
    rows: dict[str, list[BenchmarkResponse]] = {}
    for row in _read_responses(path):
        # A question without a benchmark belongs to any.
        question = by_key.get((row.benchmark, row.question_id)) or by_key.get(("", row.question_id))
        if question is None:
            raise DocumentError(
                f"{questions} has no question {row.question_id} of {row.benchmark}",
                hint="name the questions that were answered",
            )
        by_label.setdefault(row.benchmark, {})[row.question_id] = question
        rows.setdefault(row.benchmark, []).append(row)
    for label, responses in rows.items():
        places = {name: place for place, name in enumerate(by_label[label])}
        responses.sort(key=lambda row: (places[row.question_id], row.sample_index))
    return {label: list(each.values()) for label, each in by_label.items()}, rows


def _read_responses(path: Path) -> Iterator[BenchmarkResponse]:
    kinds = get_type_hints(BenchmarkResponse)
    for number, row in enumerate(rows_of(path), 1):
        missing = [name for name in kinds if row.get(name) is None]
        if missing:
            hint = f"needed: {', '.join(kinds)}"
            raise DocumentError(f"{path}, row {number}: no {missing[0]}", hint=hint)
        for name, kind in kinds.items():
            if not isinstance(row[name], kind) or isinstance(row[name], bool):
                message = f"{path}, row {number}: {name} = {abbreviate(row[name])} is no {kind.__name__}"
                raise DocumentError(message, hint="the types of responses.parquet in an evaluation's folder")
        yield BenchmarkResponse(**{name: row[name] for name in kinds})


def _read_questions(path: Path) -> dict[Key, Question]:
    """Questions by benchmark, empty if the file has none, and id."""
    questions: dict[Key, Question] = {}
    for number, row in enumerate(rows_of(path), 1):
        where = f"{path}, row {number}"
        label = str(row.get("benchmark") or "")
        question = _saved_question(row, where) if "verifier" in row else question_of(row, where)
        if (label, question.question_id) in questions:
            raise DocumentError(f"{where}: question {question.question_id} twice", hint="identifiers are unique")
        questions[label, question.question_id] = question
    return questions


def _saved_question(row: dict[str, Any], where: str) -> Question:
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
        raise DocumentError(f"{where}: {other} = {abbreviate(values[other])} is no text", hint="quote it")
    return Question(choices=choices, **{name: value or "" for name, value in values.items()})
