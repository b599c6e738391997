"""Saved answers of an examination, a run or a file, scored again without any model."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from infuser_core import plugins
from infuser_core.config.overlays import validate
from infuser_core.errors import UsageError
from infuser_core.evaluation.agreement import Agreement, agreement
from infuser_core.evaluation.curves import Curves, curves
from infuser_core.evaluation.folder import stream_rows
from infuser_core.evaluation.plan import ExamQuestion, Plan, Sheet, exam_question
from infuser_core.evaluation.saved import Answers, is_exam, of_file, of_folder, save_verdicts, score
from infuser_core.evaluation.scores import Counter
from infuser_core.schemas import BenchmarkResponse, BenchmarkVerdict, Question, QuestionScore
from infuser_core.store import runs
from infuser_core.store.recipe import ArtifactRef
from infuser_core.store.runs import Journal
from infuser_core.store.store import Lineage, Manifest, Store
from infuser_core.store.tables import read_rows
from infuser_core.terminal import Console


def find_answers(root: Path, text: str, *, questions: Path | None = None, out: Path | None = None) -> Answers:
    """The saved answers that `text` names: a folder, an evaluation of the store, a run, or a file with its questions.

    Raises UsageError when there are none.
    """
    found = _found(root, text, questions)
    return found if out is None else replace(found, out=out)


def _found(root: Path, text: str, questions: Path | None) -> Answers:
    path = Path(text)
    for folder in (path, root / "evaluations" / text):
        if is_exam(folder):
            return of_folder(folder)
    if text in runs.list_runs(root):
        return of_run(Store(root), text)
    if path.is_file():
        if questions is None:
            raise UsageError(f"{text}: which questions does it answer?", hint="name their file with --questions")
        return of_file(path, questions)
    hint = "the folder of an `infuser eval`, a run, or a file of responses with --questions"
    raise UsageError(f"{text}: no saved answers there", hint=hint)


def of_run(store: Store, name: str) -> Answers:
    """A run's evaluations; benchmarks carry the iteration of the checkpoint: `label@iteration`."""
    config = validate(runs.read_config(store.root, name))
    known = {benchmark.label or benchmark.name: benchmark.name for benchmark in config.evaluate.benchmarks}
    lineage = Lineage(store)
    entries = [entry for entry in Journal(store.root, name).latest() if entry.phase == "evaluate"]
    parts: dict[str, ArtifactRef] = {}
    sheets: list[Sheet] = []
    questions: list[ExamQuestion] = []
    for entry in sorted(entries, key=lambda entry: entry.iteration):
        responses = lineage.input(lineage.of_key(entry.key), "responses")
        manifest = store.manifest(responses)
        plain = str(manifest.summary["label"])
        label = f"{plain}@{entry.iteration}"
        asked = store.rows(responses, "asked_questions", Question)
        parts[label] = responses
        sheets.append(_sheet(label, known.get(plain, plain), manifest, count=len(asked)))
        questions += [exam_question(label, question) for question in asked]
    if not parts:
        raise UsageError(f"run {name} has no evaluation yet", hint=f"`infuser resume {name}` goes on with it")
    return Answers(
        name=name,
        plan=Plan(sheets=sheets, questions=questions),
        chunks=lambda: _chunks(store, parts),
        out=runs.runs_folder(store.root) / name / "verdicts",
    )


def _sheet(label: str, module: str, manifest: Manifest, *, count: int) -> Sheet:
    known = plugins.describe(module)
    answers = manifest.recipe["config"]["answers"]
    return Sheet(
        label=label,
        name=module,
        title=label,
        category=known.category if known else "",
        samples=int(answers["samples"]),
        max_tokens=int(answers["max_tokens"]),
        num_available=count,
        expected=known.rows if known else None,
    )


def _chunks(store: Store, parts: dict[str, ArtifactRef]) -> Iterator[list[BenchmarkResponse]]:
    for label, ref in parts.items():
        for rows in stream_rows(store.path(ref, "responses.parquet"), BenchmarkResponse):
            yield [replace(row, benchmark=label) for row in rows]


def rescore(answers: Answers, presets: Sequence[str], *, too_long: str, console: Console) -> Agreement:
    """Every preset's verdicts, written beside the answers, and how far the presets agree."""
    console.start("scoring", -1)
    scored = score(answers, presets, too_long=too_long, progress=console.progress)
    save_verdicts(answers.out, scored)
    return agreement(answers.plan, scored)


def pass_curves(
    answers: Answers, *, preset: str, ks: Sequence[int] | None, benchmarks: Sequence[str], console: Console
) -> Curves:
    """pass@k of every benchmark, or of the named ones, from saved verdicts where they are complete."""
    console.start("scoring", -1)
    questions = _saved(answers, preset) or score(answers, [preset], progress=console.progress)[0].questions
    labels = [sheet.label for sheet in answers.plan.sheets]
    unknown = [name for name in benchmarks if name not in labels]
    if unknown:
        raise UsageError(f"no answers to {unknown[0]}", hint=f"there are answers to {', '.join(labels)}")
    sheets = [sheet for sheet in answers.plan.sheets if not benchmarks or sheet.label in benchmarks]
    return curves(replace(answers.plan, sheets=sheets), questions, ks)


def _saved(answers: Answers, preset: str) -> list[QuestionScore]:
    """Question scores from the preset's saved verdicts; none unless every response has one."""
    path = answers.out / f"{preset}.parquet"
    if not path.is_file():
        return []
    verdicts = {(v.benchmark, v.question_id, v.sample_index): v for v in read_rows(path, BenchmarkVerdict)}
    counter = Counter(answers.plan)
    for rows in answers.chunks():
        own = [verdicts.get((row.benchmark, row.question_id, row.sample_index)) for row in rows]
        if None in own:
            return []
        counter.add(rows, [verdict for verdict in own if verdict is not None])
    return counter.questions()
