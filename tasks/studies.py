"""Studies on a finished or running run: does the influence score predict, and does a generator climb it?"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from infuser_core import durable
from infuser_core.engines.protocols import Progress
from infuser_core.errors import UsageError
from infuser_core.phases import influence_study as study
from infuser_core.phases import rollout_dev, update_solver
from infuser_core.phases.answering import AnswerSettings, answer_questions
from infuser_core.phases.groups import by_group
from infuser_core.report import charts
from infuser_core.schemas import InfluenceScore, Question, Role, Rollout
from infuser_core.statistics.correlation import RankCorrelation, pearson, rank_correlations
from infuser_core.store.recipe import ArtifactRef
from infuser_core.store.runs import Journal
from infuser_core.store.store import Lineage, Outcome, Table
from tasks.run import Run
from tasks.work import Work

PREDICTORS = ("preconditioned_cosine", "sgd_cosine", "uncertainty", "variance", "difficulty", "random")


def influence_study(run: Run, *, iteration: int, questions: int, rollouts: int, retest_sizes: Sequence[int]) -> Work:
    """Trials, rank correlations and score reliability for one iteration of the run, as an artifact."""
    inputs = _inputs(run, iteration)
    settings = study.StudySettings(
        step=update_solver.settings_of(run.config, iteration=iteration).step,
        questions=questions,
        rollouts=rollouts,
        retest_sizes=tuple(retest_sizes),
    )

    def produce(workspace: Path, progress: Progress) -> Outcome:
        return _study(run, settings, inputs, workspace, progress)

    recipe = run.recipe("influence_study", study.VERSION, settings, inputs, iteration=iteration, seeded=True)
    return Work(recipe=recipe, produce=produce)


def _inputs(run: Run, iteration: int) -> dict[str, ArtifactRef]:
    """The iteration's scores and, along their lineage, what they were made from."""
    latest = Journal(run.store.root, run.name).latest()
    scored = [entry for entry in latest if entry.phase == "score_influence" and entry.iteration == iteration]
    validated = [entry for entry in latest if entry.phase == "validate"]
    if not scored or not validated:
        raise UsageError(
            f"run {run.name} has no influence scores in iteration {iteration}",
            hint="choose an iteration that `infuser status` lists with score_influence",
        )
    lineage = Lineage(run.store)
    scores, validation = (lineage.of_key(entry.key) for entry in (scored[-1], validated[-1]))
    return {
        "scores": scores,
        "solver": lineage.input(scores, "solver"),
        "questions": lineage.input(scores, "questions"),
        "rollouts": lineage.input(scores, "rollouts"),
        "dev": lineage.input(lineage.input(lineage.input(scores, "gradient"), "rollouts"), "dev"),
        "held_out": lineage.input(lineage.input(validation, "responses"), "validation"),
    }


def _study(
    run: Run, settings: study.StudySettings, inputs: dict[str, ArtifactRef], workspace: Path, progress: Progress
) -> Outcome:
    scores = run.store.rows(inputs["scores"], "scores", InfluenceScore)
    answers = run.store.rows(inputs["rollouts"], "rollouts", Rollout)
    checkpoint = run.checkpoint(inputs["solver"], Role.SOLVER)
    dev = _panel(run, inputs, "dev", settings.rollouts)
    held_out = _panel(run, inputs, "held_out", settings.rollouts)
    sample = study.sample_questions(scores, settings.questions, seed=run.config.seed)
    trainer = run.pool.trainer(checkpoint)
    trials = study.run_trials(
        sample, answers, dev, held_out, trainer, checkpoint, settings, seed=run.config.seed, progress=progress
    )
    correlations = rank_correlations(
        {name: [getattr(trial, name) for trial in trials] for name in PREDICTORS},
        {
            "dev": [trial.dev_change for trial in trials],
            "held_out": [trial.held_out_change for trial in trials],
        },
    )
    reliability = _reliability(run, inputs, [row.question_id for row in sample], settings, workspace)
    return Outcome(
        tables={
            "influence_trials": Table(row_type=study.Trial, rows=trials),
            "influence_correlations": Table(row_type=RankCorrelation, rows=correlations),
        },
        summary={"trials": len(trials), "reliability": reliability},
    )


def _answer_settings(run: Run, samples: int) -> AnswerSettings:
    return replace(rollout_dev.settings_of(run.config), samples=samples)


def _panel(
    run: Run,
    inputs: dict[str, ArtifactRef],
    name: str,
    samples: int,
    *,
    scope: str = "panel",
    count: int | None = None,
) -> list[Rollout]:
    questions = run.store.rows(inputs[name], "reference_questions", Question)[:count]
    return answer_questions(
        questions,
        run.pool.sampler(run.checkpoint(inputs["solver"], Role.SOLVER)),
        _answer_settings(run, samples),
        checkpoint_id=inputs["solver"].id,
        seed=run.config.seed,
        scope=f"influence_study/{scope}/{name}",
    )


def _reliability(
    run: Run, inputs: dict[str, ArtifactRef], chosen: list[str], settings: study.StudySettings, workspace: Path
) -> dict[str, float]:
    """Pearson correlation of two independent scorings of the same questions, by group size and dev-set size."""
    generated = _generated(run, inputs, chosen)
    whole = run.store.manifest(inputs["dev"]).rows["reference_questions"]
    largest = max(settings.retest_sizes)
    cases = [(size, whole) for size in settings.retest_sizes] + [(largest, whole // 2), (largest, whole // 4)]
    found: dict[str, float] = {}
    for size, count in cases:
        first, second = (
            _rescored(run, inputs, generated, settings, size, count, half, workspace=workspace) for half in ("a", "b")
        )
        label = f"n={size}, dev={count}"
        found[label] = pearson([first[name] for name in chosen], [second[name] for name in chosen])
    return found


def _rescored(
    run: Run,
    inputs: dict[str, ArtifactRef],
    generated: list[Question],
    settings: study.StudySettings,
    size: int,
    count: int,
    half: str,
    *,
    workspace: Path,
) -> dict[str, float]:
    solver = run.checkpoint(inputs["solver"], Role.SOLVER)
    scope = f"retest-{size}-{count}{half}"
    dev = _panel(run, inputs, "dev", size, scope=scope, count=count)
    rollouts = answer_questions(
        generated,
        run.pool.sampler(solver),
        _answer_settings(run, size),
        checkpoint_id=inputs["solver"].id,
        seed=run.config.seed,
        scope=f"influence_study/{scope}",
    )
    groups = list(by_group(rollouts).values())
    return study.rescore(groups, dev, run.pool.trainer(solver), settings, workspace=workspace)


def _generated(run: Run, inputs: dict[str, ArtifactRef], chosen: list[str]) -> list[Question]:
    rows = {row.question_id: row for row in run.store.rows(inputs["questions"], "questions", Question)}
    return [rows[name] for name in chosen]


def study_result(run: Run, ref: ArtifactRef, *, figure: Path | None = None) -> dict[str, Any]:
    """The study as one JSON object; draws its figure where a path is given."""
    manifest = run.store.manifest(ref)
    rows = run.store.rows(ref, "influence_correlations", RankCorrelation)
    trials = run.store.rows(ref, "influence_trials", study.Trial)
    if figure is not None:
        drawn = charts.study([t.preconditioned_cosine for t in trials], [t.dev_change for t in trials], rows)
        durable.write(figure, drawn)
    return {
        "run": run.name,
        "iteration": manifest.recipe["iteration"],
        "trials": len(trials),
        "reliability": manifest.summary["reliability"],
        "correlations": [
            {name: getattr(row, name) for name in ("predictor", "target", "spearman", "low", "high", "count")}
            for row in rows
        ],
    }
