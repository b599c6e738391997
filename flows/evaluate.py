"""Evaluate any model on benchmarks: collect and score answers (`infuser eval`), and rescore saved answers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from infuser_core import settings
from infuser_core.errors import UsageError
from infuser_core.evaluation import comparison, contamination, inspect_logs
from infuser_core.evaluation.evaluate import ScoreSettings
from infuser_core.evaluation.models import EvaluatedModel, find_model, is_nano
from infuser_core.evaluation.plan import ExamPlan, identity_of, make_plan, name_of, select_benchmarks
from infuser_core.evaluation.record import EvaluationRecord, record_folder, refuse_other
from infuser_core.evaluation.saved import AnswerFiles, SavedAnswers, ScoredAnswers, find_answers, read_scores
from infuser_core.evaluation.scores import results_of, sheet_scores
from infuser_core.evaluation.settings import (
    EvaluationSettings,
    chat_of,
    engine_name,
    pool_of,
    settings_for,
    with_options,
)
from infuser_core.results.report import results as tables
from infuser_core.store.catalogue import Catalogue
from infuser_core.store.recipe import ArtifactRef
from infuser_core.store.store import Store
from infuser_core.system.sealed import digest_of
from tasks import evaluation as stages
from tasks.run import Execution, open_evaluation
from tasks.work import execute


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationRequest:
    """Options of `infuser eval`."""

    model: str
    """Model, in any of the forms of `infuser_core/evaluation/models.py`."""
    benchmarks: str = ""
    """Names, separated by commas; `all`; or empty for those of the configuration."""
    data: Path | None = None
    """Folder with the benchmarks' files."""
    out: Path | None = None
    """Folder for an export of answers and tables; None for no export."""
    inspect: bool = False
    """Whether Inspect's logs are exported as well."""
    samples: int | None = None
    """Responses per question; None for the benchmark's default."""
    limit: int | None = None
    """Questions per benchmark; None for all."""
    config: Path | None = None
    """Settings of engine, sampling and prompts."""
    judge: str = ""
    """Model that decides where the rules are uncertain, in any of the forms; empty for none."""
    overrides: dict[str, Any] = field(default_factory=dict)
    """Settings from options; None leaves a setting unchanged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Result of an evaluation."""

    folder: Path
    """Folder of the evaluation's tables."""
    results: dict[str, Any]
    """The content of `results.json`."""
    scores: Mapping[str, ArtifactRef]
    """Benchmark label to the artifact with verdicts and scores."""


def evaluate(request: EvaluationRequest, *, warn: Callable[[str], None]) -> Evaluation:
    """Evaluate a model: ask the questions without stored answers, then score. Repeating it reuses all answers."""
    model = find_model(settings.store_root(), request.model)
    options = settings_for(model, request.config, request.overrides)
    notes: list[str] = []

    def note(line: str) -> None:
        notes.append(line)
        warn(line)

    plan = make_plan(
        model, options, request.benchmarks, data=request.data, samples=request.samples, limit=request.limit, warn=note
    )
    return evaluate_plan(request, model, options, plan, notes=notes)


def evaluate_plan(
    request: EvaluationRequest,
    model: EvaluatedModel,
    options: EvaluationSettings,
    plan: ExamPlan,
    *,
    notes: Sequence[str] = (),
    source: ArtifactRef | None = None,
) -> Evaluation:
    """Evaluate a model on the questions of `plan`; `source` is the artifact of the questions, if they are generated."""
    root = settings.writable_store_root()
    judge = find_model(root, request.judge) if request.judge else None
    judging = stages.Judge(digest=judge.digest, load=lambda: chat_of(judge, options)) if judge else None
    identity = identity_of(model.digest, options, plan, engine=engine_name(model, options), limit=request.limit)
    if request.out is not None:
        refuse_other(request.out, identity)
    name = name_of(model.name, plan, identity)
    record = EvaluationRecord(model=model.name, identity=identity, sheets=plan.sheets, notes=list(notes))
    rules = ScoreSettings(box=options.preset, too_long=options.too_long)
    with open_evaluation(name, pool=pool_of(options)) as run:
        record.write(record_folder(root, name))
        parts, scores = {}, {}
        for sheet in plan.sheets:
            work = stages.answer(run, plan.subset([sheet.label]), model, options, source=source)
            parts[sheet.label] = execute(run, work).ref
            scores[sheet.label] = execute(run, stages.score(run, parts[sheet.label], rules, judge=judging)).ref
        run.journal.finish()
        answers = SavedAnswers(name=name, plan=plan, parts=parts)
        scored = read_scores(run.store, answers, options.preset, scores)
        results = _export(run, record, answers, scored, request=request, too_long=rules.too_long, judge=judge)
    return Evaluation(folder=request.out or record_folder(root, name), results=results, scores=scores)


def _export(
    run: Execution,
    record: EvaluationRecord,
    answers: SavedAnswers,
    scored: ScoredAnswers,
    *,
    request: EvaluationRequest,
    too_long: str,
    judge: EvaluatedModel | None,
) -> dict[str, Any]:
    """Write the tables into the evaluation's folder, and everything into the requested one. Returns the results."""
    out = request.out
    scores = sheet_scores(answers.plan, scored.questions, checkpoint_id=record.identity["model"])
    judge_name = judge.name if judge else ""
    results = results_of(
        record, scores, preset=scored.preset, too_long=too_long, judge=judge_name, verdicts=scored.verdicts
    )
    catalogue = Catalogue(run.store.root)
    for label in results["benchmarks"]:
        probes = contamination.stored_sentences(catalogue, record.identity["model"], label)
        results["notes"] = [*results["notes"], *probes]
    for folder in (record_folder(run.store.root, answers.name), out):
        if folder is not None:
            tables.export_tables(folder, record, results, answers, scores, scored.questions)
    if out is not None:
        tables.export_answers(out, run.store, answers)
        tables.export_verdicts(out.joinpath("verdicts"), [scored], has_judge=judge is not None)
        if request.inspect:
            inspect_logs.export_logs(out / "inspect", run.store, answers, scored.verdicts, results)
    return results


def probe(request: EvaluationRequest, *, control: Path | None, warn: Callable[[str], None]) -> dict[str, Any]:
    """Probe whether a model has seen benchmarks; returns the results as JSON values. A repeated call reads the store.

    Raises UsageError for a model at an address, and for a benchmark without a control.
    """
    model = find_model(settings.store_root(), request.model)
    if model.folder is None:
        raise UsageError(f"--model {request.model}: an address has no tokens", hint="name a model that has files")
    options = settings_for(model, request.config, request.overrides)
    plan = make_plan(model, options, request.benchmarks, data=request.data, samples=1, limit=request.limit, warn=warn)
    if control is not None and len(plan.sheets) > 1:
        raise UsageError(f"--control {control}: one file for {len(plan.sheets)} benchmarks", hint="name one benchmark")
    benchmarks = {
        each.label or each.name: each
        for each in select_benchmarks(request.benchmarks, options, nano=is_nano(model), warn=lambda _: None)
    }
    texts = {
        label: contamination.probe_texts(questions, benchmarks[label], file=control, seed=options.seed)
        for label, questions in plan.questions.items()
    }
    identity = {"model": model.digest, "texts": digest_of([asdict(each) for each in texts.values()])}
    results = {}
    with open_evaluation(f"{name_of(model.name, plan, identity)}-probe", pool=pool_of(options)) as run:
        for sheet in plan.sheets:
            ref = execute(run, stages.probe(run, sheet.label, texts[sheet.label], model, options)).ref
            facts = {
                "artifact": ref.key,
                "control": texts[sheet.label].control,
                "asked": len(plan.questions[sheet.label]),
            }
            results[sheet.label] = {**facts, **run.store.manifest(ref).summary}
        run.journal.finish()
    return {"model": model.name, "model_digest": model.digest, "benchmarks": results}


def rescore(
    source: str,
    *,
    presets: Sequence[str],
    questions: Path | None,
    benchmark: str,
    out: Path | None,
    overrides: Mapping[str, Any],
) -> tuple[dict[str, Any], str]:
    """Score saved answers under several presets and save the verdicts. Returns the comparison as JSON and as text."""
    options = with_options(EvaluationSettings(), overrides)
    answers, scored = _score_saved(source, presets, options, questions=questions, benchmark=benchmark)
    result = comparison.compare_presets(answers.name, answers.plan, scored)
    if out is not None:
        tables.export_verdicts(out, scored)
    return result, "\n".join([tables.comparison_text(result), *([f"verdicts: {out}"] if out else [])])


def passk(
    source: str,
    *,
    ks: Sequence[int] | None,
    overrides: Mapping[str, Any],
    benchmarks: Sequence[str],
    questions: Path | None,
    benchmark: str,
) -> tuple[dict[str, Any], str]:
    """Compute pass@k curves of saved answers. Returns them as JSON values and as text."""
    options = with_options(EvaluationSettings(), overrides)
    answers, (scored,) = _score_saved(
        source, [options.preset], options, questions=questions, benchmark=benchmark, labels=benchmarks
    )
    curves = comparison.pass_curves(answers.name, options.preset, answers.plan, scored.questions, ks)
    return curves, tables.curves_text(curves)


def _score_saved(
    source: str,
    presets: Sequence[str],
    options: EvaluationSettings,
    *,
    questions: Path | None,
    benchmark: str,
    labels: Sequence[str] = (),
) -> tuple[SavedAnswers, list[ScoredAnswers]]:
    """Load saved answers to the benchmarks `labels` (empty: all), and score them under every preset."""
    saved = find_answers(Store(settings.store_root()), source, questions, benchmark)
    with open_evaluation(f"{saved.name}-rescored", pool=pool_of(options)) as run:
        if isinstance(saved, AnswerFiles):
            # Import answers from files into the store first.
            parts = {
                label: execute(run, stages.import_answers(label, saved.plan.questions[label], rows, saved.digest)).ref
                for label, rows in saved.responses.items()
            }
            saved = SavedAnswers(name=saved.name, plan=saved.plan, parts=parts)
        answers = saved.subset(labels)
        scored = []
        for preset in presets:
            rules = ScoreSettings(box=preset, too_long=options.too_long)
            refs = {label: execute(run, stages.score(run, ref, rules)).ref for label, ref in answers.parts.items()}
            scored.append(read_scores(run.store, answers, preset, refs))
        return answers, scored
