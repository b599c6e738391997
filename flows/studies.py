"""Studies of a run: question quality, predictive power of the influence score, frozen-solver control."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Any

from flows.evaluate import EvaluationRequest, evaluate_plan
from flows.execute import execute as execute_run
from flows.execute import print_warning
from flows.repair import repair_runs
from infuser_core import settings
from infuser_core.config import shipped
from infuser_core.config.overlays import merge, validate
from infuser_core.cotrain.studies import selection
from infuser_core.cotrain.studies.candidates import PAPER, NamedScore
from infuser_core.cotrain.studies.gradients import GradientQuality
from infuser_core.cotrain.studies.selection import SelectionArm
from infuser_core.errors import PrunedError, UsageError
from infuser_core.evaluation import generated
from infuser_core.evaluation.generated import GeneratedSet, Judged
from infuser_core.evaluation.models import find_model
from infuser_core.evaluation.settings import chat_of, pool_of, settings_for, settings_of_run
from infuser_core.evaluation.statistics.averages import over_runs
from infuser_core.evaluation.statistics.correlation import RankCorrelation
from infuser_core.evaluation.statistics.question_quality import iteration_quality, side_by_side
from infuser_core.planning import sweeps
from infuser_core.planning.preflight import preflight
from infuser_core.results.reader import open_store
from infuser_core.results.report import charts, page
from infuser_core.results.report.build import influence_curve
from infuser_core.results.report.content import Report
from infuser_core.results.report.quality import quality_section
from infuser_core.store import doctor, runs
from infuser_core.store.recipe import ArtifactRef
from infuser_core.store.tables import ArrowTable
from infuser_core.system import durable
from tasks import training_pool
from tasks.evaluation import Judge
from tasks.run import Execution, open_evaluation, open_run
from tasks.studies import questions as stages
from tasks.studies import scores as score_studies
from tasks.studies.scores import ScoredIteration
from tasks.work import execute


def quality(
    run: str | None,
    *,
    iterations: str,
    solvers: Sequence[str],
    judge: str,
    strong: str,
    samples: int,
    limit: int | None,
    examples: int,
    html: Path | None,
) -> dict[str, Any]:
    """Check the quality of a run's questions in some iterations, with solvers and a judge; answers are reused.

    Models are named in any of the forms of `infuser_core/evaluation/models.py`. The first solver is the base; keys are
    compared with the answers of `strong`, by default the solver that agrees most often. A `judge` decides if a question
    is self-contained, by default rules do.
    """
    root = settings.store_root()
    name = runs.find_run(root, run)
    if len({*solvers}) < len(solvers):
        raise UsageError("a solver is named twice", hint="once is enough; --samples asks more often")
    if strong and strong not in solvers:
        raise UsageError(f"--strong {strong}: not among the solvers", hint="name it with --solver as well")
    numbers = generated.iterations_of(root, name, iterations)
    sets = [generated.generated_set(root, name, iteration, limit=limit) for iteration in numbers]
    scores = {each.iteration: _answer_all(each, solvers, samples=samples) for each in sets}
    pool = pool_of(settings_of_run(validate(runs.read_config(root, name))))
    with open_evaluation(f"{name}-quality", pool=pool) as execution:
        inputs = {f"scores-{number}-{solver}": ref for number, refs in scores.items() for solver, ref in refs.items()}
        inputs.update({f"questions-{each.iteration}": each.ref for each in sets})
        tallies = {
            number: {solver: generated.tally_of(execution.store, ref) for solver, ref in refs.items()}
            for number, refs in scores.items()
        }
        strongest = strong or generated.strongest_solver(tallies.values())
        checking = [refs[strongest] for refs in scores.values()] if strongest else []
        verdicts = generated.verdicts_of(execution.store, checking)
        judgements = _judge(execution, sets, judge, inputs)
        rows = generated.check_questions(
            [row for each in sets for row in each.rows], tallies, verdicts, judged=judgements
        )
        facts = {
            "run": name,
            "base": next(iter(solvers), ""),
            "strongest": strongest,
            "judge": judge,
            "samples": samples,
            "limit": limit,
            "iterations": [iteration_quality(list(group)) for _, group in groupby(rows, key=lambda row: row.iteration)],
            "solvers": [row for number, tally in tallies.items() for row in generated.agreements(tally, number)],
            "examples": side_by_side(rows, count=examples),
        }
        execute(execution, stages.quality(execution, facts, rows, inputs))
        execution.journal.finish()
    file = html or runs.runs_folder(root).joinpath(name, "quality", "quality.html")
    durable.write(file, page.render(Report(title=f"Generated questions of {name}", sections=[quality_section(facts)])))
    return {**facts, "page": str(file)}


def _answer_all(questions: GeneratedSet, solvers: Sequence[str], *, samples: int) -> dict[str, ArtifactRef]:
    """Evaluate every solver on the questions of one iteration; returns the scores by solver."""
    scores = {}
    for solver in solvers:
        model = find_model(settings.store_root(), solver)
        options = settings_for(model, None, {})
        plan = questions.plan(samples=samples, max_tokens=options.max_tokens)
        evaluation = evaluate_plan(EvaluationRequest(model=solver), model, options, plan, source=questions.ref)
        scores[solver] = evaluation.scores[questions.label]
    return scores


def _judge(
    run: Execution, sets: Sequence[GeneratedSet], name: str, inputs: dict[str, ArtifactRef]
) -> dict[str, Judged]:
    """Let the judge decide on every question, if there is one; its artifacts are added to `inputs`."""
    if not name:
        return {}
    model = find_model(run.store.root, name)
    options = settings_for(model, None, {})
    judge = Judge(digest=model.digest, load=lambda: chat_of(model, options))
    decisions: dict[str, Judged] = {}
    for each in sets:
        ref = execute(run, stages.judge_questions(run, each, judge, options.prompts)).ref
        inputs[f"judged-{each.iteration}"] = ref
        decisions.update({row.question_id: row for row in run.store.rows(ref, "judged_questions", Judged)})
    return decisions


FROZEN = shipped.path_of("ablation/frozen_solver")


def predict_effects(
    run: str | None, *, iteration: int, questions: int, answers: int, rollouts: int, figure: Path | None
) -> dict[str, Any]:
    """Test how well each score ranks the real effects of steps on single questions."""
    with _open_iteration(run, iteration) as (study, scores):
        work = score_studies.prediction_study(study, scores, questions=questions, answers=answers, rollouts=rollouts)
        rows = study.execute_rows(work, "score_correlations", RankCorrelation)
        if figure is not None:
            durable.write(figure, charts.svg(charts.correlations(rows), themed=False))
    correlations = [asdict(row) for row in rows]
    return {**_head(study), "artifact_key": work.recipe.key, "fresh": answers, "correlations": correlations}


_EFFECTS = """
    select s.question_id, q.text, q.choices, q.answer, s.score, e.change, e.error, e.accuracy
    from question_effects e
    join scores s using (run, iteration, question_id)
    join questions q using (run, question_id)
    where e.artifact_key = $key
    order by s.score desc
"""


def study_prediction(
    run: str | None = None, *, iteration: int = 0, questions: int = 64, answers: int = 32
) -> ArrowTable:
    """Measure what one optimizer step on each of some scored questions changes, as `infuser study prediction` does.

    Each step is taken on `answers` new answers. Returns a row per question, the highest score first: its text, key and
    score, and `change`, how much the mean probability of right replies to the validation questions rises, with its
    standard error. A repeated call reads the store. Raises UsageError if the iteration has no scores.
    """
    size = {"questions": questions, "answers": answers, "rollouts": score_studies.EFFECT_ROLLOUTS}
    study = _study(predict_effects, run, iteration=iteration, figure=None, **size)
    return open_store().run(study["run"]).query(_EFFECTS, {"key": study["artifact_key"]})


def select_questions(
    run: str | None, *, iteration: int, share: float, steps: int, draws: int, samples: int | None, leave_out: bool
) -> dict[str, Any]:
    """Train equally long on each score's best questions and on random ones, and compare the accuracies.

    With `leave_out`, on all others: the lower the accuracy, the more the score's best questions were worth.
    """
    size = {"share": share, "steps": steps, "draws": draws, "samples": samples}
    study, _, rows = _arms(run, iteration, ranked=True, leave_out=leave_out, **size)
    return {**_head(study), "steps": steps, "arms": list(selection.summary(rows))}


def datamodelling_score(
    run: str | None, *, iteration: int, share: float, steps: int, subsets: int, samples: int | None
) -> dict[str, Any]:
    """Linear datamodelling score: train on random subsets and correlate their summed scores with the accuracies."""
    study, scores, rows = _arms(run, iteration, share=share, steps=steps, draws=subsets, samples=samples, ranked=False)
    correlations = [asdict(row) for row in selection.datamodelling(rows, scores)]
    return {**_head(study), "steps": steps, "subsets": subsets, "correlations": correlations}


def gradient_quality(run: str | None, *, iteration: int, documents: int, batches: int, answers: int) -> dict[str, Any]:
    """Compare the generator's gradient with that of real effects (cosine), by reward and advantage."""
    with _open_iteration(run, iteration) as (study, scores):
        work = score_studies.gradient_study(study, scores, documents=documents, batches=batches, answers=answers)
        rows = study.execute_rows(work, "gradient_quality", GradientQuality)
    return {**_head(study), "batches": batches, "rows": [asdict(row) for row in rows]}


@contextmanager
def _open_iteration(run: str | None, iteration: int) -> Iterator[tuple[ScoredIteration, ArtifactRef]]:
    """Open a run to study one iteration; yields the iteration and the values of every score."""
    name = runs.find_run(settings.store_root(), run)
    config = validate(runs.read_config(settings.store_root(), name))
    with open_run(name, config, journal="studies.jsonl") as opened_run:
        study = score_studies.scored_iteration(opened_run, iteration)
        yield study, score_studies.named_scores(study, anchor=training_pool.make_anchor(name))


def _head(study: ScoredIteration) -> dict[str, Any]:
    return {"run": study.run.name, "variant": study.run.config.label, "iteration": study.iteration}


_TABLES = {"arms": ("arm", "accuracy"), "correlations": ("predictor", "spearman")}
"""Tables of studies to average over runs, with their columns of names and values."""


def of_each(study: Callable[..., dict[str, Any]], inputs: Sequence[str], **options: Any) -> dict[str, Any]:
    """Run a study on one run, or on several runs or a sweep file's with means and intervals over them."""
    names: list[str | None] = []
    for name in inputs:
        is_sweep = name.endswith((".yaml", ".yml"))
        names.extend([config.run_name() for config in sweeps.read_sweep(Path(name))] if is_sweep else [name])
    studies = [_study(study, run, **options) for run in names or [None]]
    if len(studies) == 1:
        return studies[0]
    table, (name, value) = next(each for each in _TABLES.items() if each[0] in studies[0])
    pooled = over_runs([(each["variant"], each[table]) for each in studies], name=name, value=value, first=PAPER)
    return {"iteration": options["iteration"], "pooled": pooled, "runs": studies}


def _study(study: Callable[..., dict[str, Any]], run: str | None, **options: Any) -> dict[str, Any]:
    """Run a study; checkpoints and gradients that it reads and retention removed are computed again first."""
    restored: set[str] = set()
    while True:
        try:
            return study(run, **options)
        except PrunedError as error:
            if error.key in restored:
                raise
            print_warning(f"{error.message}; it is computed again first, bit by bit the same")
            root = settings.store_root()
            keys = doctor.with_keys_to_restore(root, [error.key])
            restored.update(keys)
            repair_runs(root, [runs.find_run(root, run)], keys)


def _arms(run: str | None, iteration: int, **size: Any) -> tuple[ScoredIteration, list[NamedScore], list[SelectionArm]]:
    with _open_iteration(run, iteration) as (study, scores):
        rows = study.execute_rows(score_studies.selection_study(study, scores, **size), "selection_arms", SelectionArm)
        return study, score_studies.named_rows(study.run, scores), rows


def frozen_solver(run: str | None, *, updates: int, figure: Path | None) -> dict[str, Any]:
    """Repeat a run with a frozen solver and one batch of documents for `updates` generator steps."""
    base = runs.read_config(settings.store_root(), runs.find_run(settings.store_root(), run))
    config = validate(merge(merge(base, shipped.read_settings_file(FROZEN)), {"cotrain": {"iterations": updates}}))
    preflight(config)
    name = config.run_name()
    execute_run(config, name)
    return influence_curve(settings.store_root(), name, figure=figure)
