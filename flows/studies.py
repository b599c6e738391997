"""Studies of a run: quality of generated questions, solver gaps, prediction of the score, a frozen solver."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Any

from flows.evaluate import Order, evaluate_plan
from flows.execute import execute as execute_run
from infuser_core import settings
from infuser_core.config import shipped
from infuser_core.config.overlays import merge, validate
from infuser_core.cotrain.studies import selection
from infuser_core.cotrain.studies.candidates import PAPER, NamedScore
from infuser_core.cotrain.studies.gradients import GradientQuality
from infuser_core.cotrain.studies.selection import SelectionArm
from infuser_core.errors import UsageError
from infuser_core.evaluation import generated
from infuser_core.evaluation.generated import GeneratedSet, Judged
from infuser_core.evaluation.models import find_model
from infuser_core.evaluation.settings import chat_of, of_run, pool_of, settings_for
from infuser_core.evaluation.statistics.averages import over_runs
from infuser_core.evaluation.statistics.correlation import RankCorrelation
from infuser_core.evaluation.statistics.question_quality import CheckedQuestion, iteration_quality, side_by_side
from infuser_core.evaluation.statistics.tally import Tally
from infuser_core.planning import sweeps
from infuser_core.planning.preflight import preflight
from infuser_core.results.report import charts, page
from infuser_core.results.report.build import influence_curve
from infuser_core.results.report.content import Report
from infuser_core.results.report.quality import quality as section
from infuser_core.store import runs
from infuser_core.store.recipe import ArtifactRef
from infuser_core.system import durable
from tasks.evaluation import Judge
from tasks.run import Execution, evaluating, opened
from tasks.studies import questions as stages
from tasks.studies import scores as studied_scores
from tasks.studies.scores import Studied
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
    """Chosen iterations' questions, answered and checked. Repeating it asks nobody twice.

    Models are named in any of the forms of `infuser_core/evaluation/models.py`. The first solver is the base; keys are
    compared with the `strong` one, by default the one that agrees most often. A `judge` decides whether a question
    stands alone, by default rules do.
    """
    root = settings.store_root()
    name = runs.find_run(root, run)
    if len({*solvers}) < len(solvers):
        raise UsageError("a solver is named twice", hint="once is enough; --samples asks more often")
    if strong and strong not in solvers:
        raise UsageError(f"--strong {strong}: not among the solvers", hint="name it with --solver as well")
    chosen = generated.iterations_of(root, name, iterations)
    sets = [generated.generated_set(root, name, iteration, limit=limit) for iteration in chosen]
    scores = {each.iteration: _answered(each, solvers, samples=samples) for each in sets}
    pool = pool_of(of_run(validate(runs.read_config(root, name))))
    with evaluating(f"{name}-quality", pool=pool) as execution:
        made = {f"scores-{number}-{solver}": ref for number, refs in scores.items() for solver, ref in refs.items()}
        made.update({f"questions-{each.iteration}": each.ref for each in sets})
        tallies = {
            number: {solver: generated.tally_of(execution.store, ref) for solver, ref in refs.items()}
            for number, refs in scores.items()
        }
        strongest = strong or generated.strongest(tallies.values())
        checking = [refs[strongest] for refs in scores.values()] if strongest else []
        verdicts = generated.verdicts_of(execution.store, checking)
        judged = _judged(execution, sets, judge, made)
        rows = generated.check([row for each in sets for row in each.rows], tallies, verdicts, judged=judged)
        found = {
            "run": name,
            "base": next(iter(solvers), ""),
            "strongest": strongest,
            "judge": judge,
            "samples": samples,
            "limit": limit,
            **_summary(rows, tallies),
            "examples": side_by_side(rows, count=examples),
        }
        execute(execution, stages.quality(execution, found, rows, made))
        execution.journal.finish()
    return {**found, "page": str(_page(root, name, found, html))}


def _answered(asked: GeneratedSet, solvers: Sequence[str], *, samples: int) -> dict[str, ArtifactRef]:
    """The scores of every solver on the questions of one iteration."""
    scores = {}
    for solver in solvers:
        model = find_model(settings.store_root(), solver)
        chosen = settings_for(model, None, {})
        plan = asked.plan(samples=samples, max_tokens=chosen.max_tokens)
        done = evaluate_plan(Order(model=solver), model, chosen, plan, source=asked.ref)
        scores[solver] = done.scores[asked.label]
    return scores


def _judged(
    run: Execution, sets: Sequence[GeneratedSet], asked: str, made: dict[str, ArtifactRef]
) -> dict[str, Judged]:
    """The judge's word on every question; nothing without a judge."""
    if not asked:
        return {}
    model = find_model(run.store.root, asked)
    chosen = settings_for(model, None, {})
    judge = Judge(digest=model.digest, load=lambda: chat_of(model, chosen))
    found: dict[str, Judged] = {}
    for each in sets:
        ref = execute(run, stages.judge_questions(run, each, judge, chosen.prompts)).ref
        made[f"judged-{each.iteration}"] = ref
        found.update({row.question_id: row for row in run.store.rows(ref, "judged_questions", Judged)})
    return found


def _summary(rows: Sequence[CheckedQuestion], tallies: Mapping[int, Mapping[str, Tally]]) -> dict[str, Any]:
    """Numbers per iteration and solver."""
    solvers = [row for iteration, each in tallies.items() for row in generated.agreements(each, iteration)]
    per = [iteration_quality(list(mine)) for _, mine in groupby(rows, key=lambda row: row.iteration)]
    return {"iterations": per, "solvers": solvers}


def _page(root: Path, name: str, found: dict[str, Any], html: Path | None) -> Path:
    """The page of what was found; returns where it lies."""
    shown = html or runs.runs_folder(root).joinpath(name, "quality", "quality.html")
    durable.write(shown, page.render(Report(title=f"Generated questions of {name}", sections=[section(found)])))
    return shown


FROZEN = shipped.path_of("ablation/frozen_solver")


def predict_effects(
    run: str | None, *, iteration: int, questions: int, answers: int, rollouts: int, figure: Path | None
) -> dict[str, Any]:
    """Steps on single questions: does any score rank what they change?"""
    with _studied(run, iteration) as (asked, named):
        work = studied_scores.prediction_study(asked, named, questions=questions, answers=answers, rollouts=rollouts)
        rows = asked.made(work, "score_correlations", RankCorrelation)
        if figure is not None:
            durable.write(figure, charts.svg(charts.correlations(rows), themed=False))
    return {**_head(asked), "fresh": answers, "correlations": [asdict(row) for row in rows]}


def select_questions(
    run: str | None, *, iteration: int, share: float, steps: int, draws: int, samples: int | None
) -> dict[str, Any]:
    """Equal training on the questions that each score chooses, and on random ones."""
    asked, _, rows = _arms(run, iteration, share=share, steps=steps, draws=draws, samples=samples, ranked=True)
    return {**_head(asked), "steps": steps, "arms": list(selection.summary(rows))}


def datamodelling_score(
    run: str | None, *, iteration: int, share: float, steps: int, subsets: int, samples: int | None
) -> dict[str, Any]:
    """Train on random subsets of one iteration's questions: do their summed scores rank what each reaches?"""
    asked, named, rows = _arms(run, iteration, share=share, steps=steps, draws=subsets, samples=samples, ranked=False)
    found = [asdict(row) for row in selection.datamodelling(rows, named)]
    return {**_head(asked), "steps": steps, "subsets": subsets, "correlations": found}


def gradient_quality(run: str | None, *, iteration: int, documents: int, batches: int, answers: int) -> dict[str, Any]:
    """Cosine of the generator's gradient and the true one, by reward and advantage."""
    with _studied(run, iteration) as (asked, named):
        work = studied_scores.gradient_study(asked, named, documents=documents, batches=batches, answers=answers)
        rows = asked.made(work, "gradient_quality", GradientQuality)
    return {**_head(asked), "batches": batches, "rows": [asdict(row) for row in rows]}


@contextmanager
def _studied(run: str | None, iteration: int) -> Iterator[tuple[Studied, ArtifactRef]]:
    """One iteration of a run, opened, with the values of every score."""
    name = runs.find_run(settings.store_root(), run)
    config = validate(runs.read_config(settings.store_root(), name))
    with opened(name, config, journal="studies.jsonl") as opened_run:
        asked = studied_scores.studied(opened_run, iteration)
        yield asked, studied_scores.named_scores(asked)


def _head(asked: Studied) -> dict[str, Any]:
    return {"run": asked.run.name, "variant": asked.run.config.label, "iteration": asked.iteration}


_TABLES = {"arms": ("arm", "accuracy"), "correlations": ("predictor", "spearman")}
"""Tables of studies, and their columns of names and values."""


def of_each(study: Callable[..., dict[str, Any]], given: Sequence[str], **options: Any) -> dict[str, Any]:
    """A study of one run or, over several runs or the runs of a sweep file, of each, with means and intervals."""
    names: list[str | None] = [run for each in given for run in _named(each)]
    found = [study(run, **options) for run in names or [None]]
    if len(found) == 1:
        return found[0]
    table, (name, value) = next(each for each in _TABLES.items() if each[0] in found[0])
    pooled = over_runs([(each["variant"], each[table]) for each in found], name=name, value=value, first=PAPER)
    return {"iteration": options["iteration"], "pooled": pooled, "runs": found}


def _named(given: str) -> list[str]:
    if not given.endswith((".yaml", ".yml")):
        return [given]
    return [config.run_name() for config in sweeps.read_sweep(Path(given))]


def _arms(run: str | None, iteration: int, **size: Any) -> tuple[Studied, list[NamedScore], list[SelectionArm]]:
    with _studied(run, iteration) as (asked, named):
        rows = asked.made(studied_scores.selection_study(asked, named, **size), "selection_arms", SelectionArm)
        return asked, studied_scores.named_rows(asked.run, named), rows


def frozen_solver(run: str | None, *, updates: int, figure: Path | None) -> dict[str, Any]:
    """The run's settings with a solver that never moves and one batch of documents: `updates` generator steps."""
    given = runs.read_config(settings.store_root(), runs.find_run(settings.store_root(), run))
    config = validate(merge(merge(given, shipped.read_settings_file(FROZEN)), {"cotrain": {"iterations": updates}}))
    preflight(config)
    name = config.run_name()
    execute_run(config, name)
    return influence_curve(settings.store_root(), name, figure=figure)
