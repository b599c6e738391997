"""Evaluation of any model: ask it, keep its answers, score them (`infuser eval`) and score them again."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from infuser_core import settings
from infuser_core.evaluation import comparison, inspect_logs
from infuser_core.evaluation.evaluate import ScoreSettings
from infuser_core.evaluation.models import NamedModel, find_model
from infuser_core.evaluation.plan import Plan, identity_of, make_plan, name_of
from infuser_core.evaluation.record import Record, folder_of, refuse_other
from infuser_core.evaluation.saved import Answers, Files, Scored, find, read_scored
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
from infuser_core.store.recipe import ArtifactRef
from infuser_core.store.store import Store
from tasks import evaluation as stages
from tasks.run import Execution, evaluating
from tasks.work import execute


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Options of `infuser eval`."""

    model: str
    """Model, in any of the forms of `infuser_core/evaluation/models.py`."""
    benchmarks: str = ""
    """Names, comma-joined; `all`; or empty for those of the configuration."""
    data: Path | None = None
    """Folder with the benchmarks' files."""
    out: Path | None = None
    """Folder that answers and tables are exported to; nowhere when None."""
    inspect: bool = False
    """Whether Inspect's logs are exported as well."""
    samples: int | None = None
    """Responses per question; the benchmark's own number when None."""
    limit: int | None = None
    """Questions per benchmark; all when None."""
    config: Path | None = None
    """Settings of engine, sampling and prompts."""
    judge: str = ""
    """Model that breaks ties, in any of the forms; nobody when empty."""
    overrides: dict[str, Any] = field(default_factory=dict)
    """Settings given as options; None leaves one as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """An evaluation with its results."""

    folder: Path
    """Where its tables lie."""
    results: dict[str, Any]
    """The content of `results.json`."""
    scores: Mapping[str, ArtifactRef]
    """Benchmark label to the artifact with verdicts and scores."""


def evaluate(order: Order, *, warn: Callable[[str], None]) -> Evaluated:
    """Ask what is not answered yet, then score. Repeating it costs no question twice."""
    model = find_model(settings.store_root(), order.model)
    chosen = settings_for(model, order.config, order.overrides)
    notes: list[str] = []

    def note(line: str) -> None:
        notes.append(line)
        warn(line)

    plan = make_plan(
        model, chosen, order.benchmarks, data=order.data, samples=order.samples, limit=order.limit, warn=note
    )
    return evaluate_plan(order, model, chosen, plan, notes=notes)


def evaluate_plan(
    order: Order,
    model: NamedModel,
    chosen: EvaluationSettings,
    plan: Plan,
    *,
    notes: Sequence[str] = (),
    source: ArtifactRef | None = None,
) -> Evaluated:
    """Evaluate the model on these questions; `source` is the artifact that generated ones are from."""
    root = settings.writable_store_root()
    judge = find_model(root, order.judge) if order.judge else None
    judging = stages.Judge(digest=judge.digest, load=lambda: chat_of(judge, chosen)) if judge else None
    identity = identity_of(model.digest, chosen, plan, engine=engine_name(model, chosen), limit=order.limit)
    if order.out is not None:
        refuse_other(order.out, identity)
    name = name_of(model.name, plan, identity)
    record = Record(model=model.name, identity=identity, sheets=plan.sheets, notes=list(notes))
    rules = ScoreSettings(box=chosen.preset, too_long=chosen.too_long)
    with evaluating(name, pool=pool_of(chosen)) as run:
        record.write(folder_of(root, name))
        parts, scores = {}, {}
        for sheet in plan.sheets:
            work = stages.answer(run, plan.of([sheet.label]), model, chosen, source=source)
            parts[sheet.label] = execute(run, work).ref
            scores[sheet.label] = execute(run, stages.score(run, parts[sheet.label], rules, judge=judging)).ref
        run.journal.finish()
        answers = Answers(name=name, plan=plan, parts=parts)
        scored = read_scored(run.store, answers, chosen.preset, scores)
        results = _exported(run, record, answers, scored, order=order, too_long=rules.too_long, judge=judge)
    return Evaluated(folder=order.out or folder_of(root, name), results=results, scores=scores)


def _exported(
    run: Execution,
    record: Record,
    answers: Answers,
    scored: Scored,
    *,
    order: Order,
    too_long: str,
    judge: NamedModel | None,
) -> dict[str, Any]:
    """Write the tables next to the record and everything into the requested folder; returns the results."""
    out = order.out
    scores = sheet_scores(answers.plan, scored.questions, checkpoint_id=record.identity["model"])
    judge_name = judge.name if judge else ""
    results = results_of(
        record, scores, preset=scored.preset, too_long=too_long, judge=judge_name, verdicts=scored.verdicts
    )
    for folder in (folder_of(run.store.root, answers.name), out):
        if folder is not None:
            tables.export_tables(folder, record, results, answers, scores, scored.questions)
    if out is not None:
        tables.export_answers(out, run.store, answers)
        tables.export_verdicts(out.joinpath("verdicts"), [scored], has_judge=judge is not None)
        if order.inspect:
            inspect_logs.export_logs(out / "inspect", run.store, answers, scored.verdicts, results)
    return results


def rescore(
    source: str,
    *,
    presets: Sequence[str],
    questions: Path | None,
    benchmark: str,
    out: Path | None,
    overrides: Mapping[str, Any],
) -> tuple[dict[str, Any], str]:
    """Score saved answers under the presets and keep the verdicts; the comparison for programs and for people."""
    chosen = with_options(EvaluationSettings(), overrides)
    answers, scored = _scored(source, presets, chosen, questions=questions, benchmark=benchmark)
    found = comparison.compare_presets(answers.name, answers.plan, scored)
    if out is not None:
        tables.export_verdicts(out, scored)
    return found, "\n".join([tables.comparison_text(found), *([f"verdicts: {out}"] if out else [])])


def passk(
    source: str,
    *,
    ks: Sequence[int] | None,
    overrides: Mapping[str, Any],
    benchmarks: Sequence[str],
    questions: Path | None,
    benchmark: str,
) -> tuple[dict[str, Any], str]:
    """pass@k curves of saved answers, for programs and for people."""
    chosen = with_options(EvaluationSettings(), overrides)
    answers, (scored,) = _scored(
        source, [chosen.preset], chosen, questions=questions, benchmark=benchmark, wanted=benchmarks
    )
    curves = comparison.pass_curves(answers.name, chosen.preset, answers.plan, scored.questions, ks)
    return curves, tables.curves_text(curves)


def _scored(
    source: str,
    presets: Sequence[str],
    chosen: EvaluationSettings,
    *,
    questions: Path | None,
    benchmark: str,
    wanted: Sequence[str] = (),
) -> tuple[Answers, list[Scored]]:
    """Saved answers with what every preset makes of them; computed at most once."""
    named = find(Store(settings.store_root()), source, questions, benchmark)
    with evaluating(f"{named.name}-rescored", pool=pool_of(chosen)) as run:
        answers = _taken_in(run, named).of(wanted)
        scored = []
        for preset in presets:
            rules = ScoreSettings(box=preset, too_long=chosen.too_long)
            refs = {label: execute(run, stages.score(run, ref, rules)).ref for label, ref in answers.parts.items()}
            scored.append(read_scored(run.store, answers, preset, refs))
        return answers, scored


def _taken_in(run: Execution, named: Answers | Files) -> Answers:
    """The answers in the store; those of a file are put there first."""
    if isinstance(named, Answers):
        return named
    parts = {
        label: execute(run, stages.take_in(label, named.plan.questions[label], rows, named.digest)).ref
        for label, rows in named.responses.items()
    }
    return Answers(name=named.name, plan=named.plan, parts=parts)
