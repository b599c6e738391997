"""Stages of studies on influence scores: values of all scores, effects of single steps, trained selections."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from infuser_core.config.phase_table import Phase
from infuser_core.config.recorded import recorded
from infuser_core.cotrain.phases import dev_gradient, rollout_dev, update_generator, update_solver
from infuser_core.cotrain.phases.parts.real_steps import Measure, reweighted_measure
from infuser_core.cotrain.studies import candidates, effects, gradients, selection
from infuser_core.errors import UsageError
from infuser_core.evaluation.answering import answer_questions, render_messages
from infuser_core.evaluation.statistics.correlation import RankCorrelation
from infuser_core.protocols import Progress, Trainer, TrainGroup, TrainRow
from infuser_core.schemas import Checkpoint, InfluenceScore, Question, QuestionLabel, Role, Rollout
from infuser_core.store.catalogue import Catalogue
from infuser_core.store.journal import Journal
from infuser_core.store.pieces import Pieces
from infuser_core.store.recipe import ArtifactRef
from infuser_core.store.store import Outcome, Table
from tasks.run import Run
from tasks.work import Work, add_not_finite, execute

Produce = Callable[[Path, Path, Progress], Outcome]
SAMPLES = 8
"""Answers sampled per held-out question if the right reply is unknown."""
EFFECT_ROLLOUTS = 64
"""Answers sampled per held-out question for the real effects of steps, if there is no exact measure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredIteration:
    """One iteration of an open run, with its influence scores and the artifacts they came from."""

    run: Run
    iteration: int
    inputs: Mapping[str, ArtifactRef]
    """Input artifacts by name: scores, solver, questions, rollouts, gradient, dev, held_out."""
    reply: str = ""
    """Template of a right reply with {answer}, whose probability is measured; empty for questions of the lab."""

    def rows(self, name: str, table: str, kind: type[Any]) -> list[Any]:
        """Rows of a table of the named input."""
        return self.run.store.rows(self.inputs[name], table, kind)

    @property
    def checkpoint(self) -> Checkpoint:
        """Checkpoint of the solver for which influence was scored."""
        return self.run.checkpoint(self.inputs["solver"], Role.SOLVER)

    @property
    def trainer(self) -> Trainer:
        """Trainer with that checkpoint loaded."""
        return self.run.pool.trainer(self.checkpoint)

    def answers(
        self, questions: list[Question], samples: int, scope: str, checkpoint: Checkpoint | None = None
    ) -> list[Rollout]:
        """Sample new answers of the solver or of another checkpoint; `scope` separates their random draws."""
        checkpoint = checkpoint or self.checkpoint
        return answer_questions(
            questions,
            self.run.pool.sampler(checkpoint),
            replace(rollout_dev.settings_of(self.run.config), samples=samples),
            checkpoint_id=checkpoint.checkpoint_id,
            seed=self.run.config.seed,
            scope=scope,
        )

    def execute_rows(self, work: Work, table: str, kind: type[Any]) -> list[Any]:
        """Execute a study's stage, unless its artifact is stored, and read the rows of a table."""
        return self.run.store.rows(execute(self.run, work).ref, table, kind)

    def work(self, phase: str, version: int, settings: Any, produce: Produce, **more: ArtifactRef) -> Work:
        """Make the work of a stage with these inputs and `more`; `produce` also gets a folder for partial results."""
        values = recorded(settings) | ({"reply": self.reply} if self.reply else {})
        inputs, seed = {**self.inputs, **more}, self.run.config.seed
        recipe = self.run.recipe(phase, version, values, inputs, iteration=self.iteration, seed=seed)
        return Work(recipe=recipe, produce=partial(produce, self.run.store.partial(recipe)))


def scored_iteration(run: Run, iteration: int) -> ScoredIteration:
    """Find an iteration's scores and their inputs. Raises UsageError if the iteration has no scores."""
    latest = Journal(run.store.root, run.name).latest()
    scored = [entry for entry in latest if entry.phase == Phase.SCORE_INFLUENCE and entry.iteration == iteration]
    validated = [entry for entry in latest if entry.phase == Phase.VALIDATE]
    if not scored or not validated:
        raise UsageError(
            f"run {run.name} has no influence scores in iteration {iteration}",
            hint="choose an iteration that `infuser status --stages` lists with score_influence",
        )
    catalogue, scores = Catalogue(run.store.root), scored[-1].key
    inputs = {name: catalogue.input_ref(scores, name) for name in ("solver", "questions", "rollouts", "gradient")}
    dev_rollouts = catalogue.input_ref(inputs["gradient"].key, "rollouts")
    responses = catalogue.input_ref(validated[-1].key, "responses")
    inputs |= {
        "scores": catalogue.record(scores).ref,
        "dev": catalogue.input_ref(dev_rollouts.key, "dev"),
        "held_out": catalogue.input_ref(responses.key, "validation"),
    }
    return ScoredIteration(run=run, iteration=iteration, inputs=inputs)


def named_scores(study: ScoredIteration, *, anchor: ArtifactRef | None = None) -> ArtifactRef:
    """Compute every kind of score for the iteration's questions, unless stored; returns the artifact.

    The costly ones are computed if the run's anchor is named: it answers the questions, too. Raises UsageError for a
    run whose scores were measured by real steps.
    """
    run, objective = study.run, dev_gradient.objective_of(study.run.config)
    if run.config.cotrain.influence == "measured":
        raise UsageError(
            f"run {run.name}: cotrain.influence = measured stores no direction that scores could be compared by",
            hint="study a run with another cotrain.influence",
        )
    labelled = "question_labels" in run.store.manifest(study.inputs["questions"]).rows

    def produce(partial_folder: Path, workspace: Path, progress: Progress) -> Outcome:
        questions, old_rollouts = study.rows("questions", "questions", Question), list[Rollout]()
        scored = study.rows("scores", "scores", InfluenceScore)
        if anchor is not None:
            rated = {row.question_id for row in candidates.questions_with_direction(scored)}
            again, samples = [row for row in questions if row.question_id in rated], run.config.cotrain.group_size
            old_rollouts = study.answers(again, samples, "named_scores", run.checkpoint(anchor, Role.SOLVER))
        with TemporaryDirectory(dir=workspace) as folder:
            rows = candidates.named_scores(
                questions,
                scored,
                study.rows("rollouts", "rollouts", Rollout),
                study.rows("dev", "reference_questions", Question),
                study.rows("questions", "question_labels", QuestionLabel) if labelled else [],
                study.trainer,
                study.checkpoint,
                objective,
                reference=run.store.path(study.inputs["gradient"], dev_gradient.FILE),
                workspace=Path(folder),
                old_rollouts=old_rollouts,
                saved_rows=Pieces(partial_folder, candidates.NamedScore),
                progress=progress,
            )
        table = Table(row_type=candidates.NamedScore, rows=rows)
        return Outcome(tables={"named_scores": table}, summary={"scores": len(rows)})

    more = {} if anchor is None else {"anchor": anchor}
    return execute(run, study.work("named_scores", candidates.VERSION, objective, produce, **more)).ref


def named_rows(run: Run, ref: ArtifactRef) -> list[candidates.NamedScore]:
    """Read the rows of the artifact that `named_scores` returns."""
    return run.store.rows(ref, "named_scores", candidates.NamedScore)


def prediction_study(
    study: ScoredIteration, score_values: ArtifactRef, *, questions: int, answers: int, rollouts: int
) -> Work:
    """Measure the effects of real steps on single questions, and their rank correlation with every score.

    Each step trains on `answers` new answers, or on the scored ones if `answers` is 0.
    """
    run, seed = study.run, study.run.config.seed
    step = update_solver.settings_of(run.config, iteration=study.iteration).step
    settings = effects.EffectSettings(step=step, questions=questions, answers=answers, rollouts=rollouts)

    def produce(partial_folder: Path, workspace: Path, progress: Progress) -> Outcome:
        sample = effects.sample_questions(study.rows("scores", "scores", InfluenceScore), questions, seed=seed)
        names = [row.question_id for row in sample]
        fresh = [row for row in study.rows("questions", "questions", Question) if row.question_id in {*names}]
        answered = study.rows("rollouts", "rollouts", Rollout)
        if answers:
            answered = study.answers(fresh, answers, "prediction_study/step")
        replies = right_replies(study) if answers else []
        measures = {"held_out": exact_measure(study, replies)} if replies else _reweighted_measures(study, settings)
        measured, not_finite = effects.step_effects(
            names,
            answered,
            study.trainer,
            study.checkpoint,
            measures,
            step,
            saved_rows=Pieces(partial_folder, effects.Effect),
            progress=progress,
        )
        correlations = effects.correlations(measured, named_rows(run, score_values))
        outcome = Outcome(
            tables={
                "question_effects": Table(row_type=effects.Effect, rows=measured),
                "score_correlations": Table(row_type=RankCorrelation, rows=correlations),
            },
            summary={"questions": len(names)},
        )
        return add_not_finite(outcome, not_finite)

    return study.work("prediction_study", effects.VERSION, settings, produce, named=score_values)


def _reweighted_measures(study: ScoredIteration, settings: effects.EffectSettings) -> dict[str, Measure]:
    """Accuracy measures by reweighted answers to held-out questions and, for steps on scored answers, dev questions."""
    parts = ["held_out"] if settings.answers else ["dev", "held_out"]
    panels = {
        name: study.answers(
            study.rows(name, "reference_questions", Question), settings.rollouts, f"prediction_study/panel/{name}"
        )
        for name in parts
    }
    trainer = study.trainer
    trainer.load(study.checkpoint)
    temperature = settings.step.objective.temperature
    return {name: reweighted_measure(rows, trainer, temperature=temperature) for name, rows in panels.items()}


def gradient_study(
    study: ScoredIteration, score_values: ArtifactRef, *, documents: int, batches: int, answers: int
) -> Work:
    """Compare the generator's gradient with that of the questions' real effects (cosine), by reward and advantage."""
    run = study.run
    writer = Catalogue(run.store.root).input_ref(study.inputs["questions"].key, "generator")
    update = update_generator.settings_of(run.config, iteration=study.iteration)
    settings = gradients.GradientSettings(
        objective=update.step.objective, documents=documents, batches=batches, invalid=update.invalid
    )
    everything = len(study.rows("questions", "questions", Question))
    measured = prediction_study(study, score_values, questions=everything, answers=answers, rollouts=EFFECT_ROLLOUTS)
    effect_ref = execute(run, measured).ref

    def produce(partial_folder: Path, workspace: Path, progress: Progress) -> Outcome:
        rollouts = study.rows("questions", "rollouts", Rollout)
        checkpoint = run.checkpoint(writer, Role.GENERATOR)
        with TemporaryDirectory(dir=workspace) as folder:
            products = gradients.inner_products(
                rollouts,
                run.pool.trainer(checkpoint),
                checkpoint,
                settings.objective,
                workspace=Path(folder),
                progress=progress,
            )
        effect_rows = run.store.rows(effect_ref, "question_effects", effects.Effect)
        rows = gradients.gradient_quality(
            rollouts,
            study.rows("questions", "questions", Question),
            study.rows("scores", "scores", InfluenceScore),
            {row.question_id: row.change for row in effect_rows},
            products,
            settings,
            seed=run.config.seed,
        )
        table = Table(row_type=gradients.GradientQuality, rows=rows)
        return Outcome(tables={"gradient_quality": table}, summary={"rows": len(rows)})

    return study.work("gradient_study", gradients.VERSION, settings, produce, generator=writer, effects=effect_ref)


def right_replies(study: ScoredIteration) -> list[str]:
    """Right replies to the held-out questions; empty if one of them is unknown."""
    from infuser_core.nano.exact import sound_reply

    questions = study.rows("held_out", "reference_questions", Question)
    replies = [study.reply.replace("{answer}", row.answer) if study.reply else sound_reply(row) for row in questions]
    return replies if all(replies) else []


def exact_measure(study: ScoredIteration, replies: list[str]) -> Measure:
    """The exact measure: probability of the right replies to the held-out questions, end token included."""
    tokenizer = study.run.pool.sampler(study.checkpoint).tokenizer
    end = [] if tokenizer.end_token is None else [tokenizer.end_token]
    profile = rollout_dev.settings_of(study.run.config).prompts
    groups = []
    for question, reply in zip(study.rows("held_out", "reference_questions", Question), replies, strict=True):
        tokens = tokenizer.encode(reply) + end
        row = TrainRow(token_ids=tokens, advantage=0.0, sampler_logprobs=[0.0] * len(tokens))
        prompt = tokenizer.render(render_messages(question, prompts=profile))
        groups.append(TrainGroup(group_id=question.question_id, prompt_token_ids=prompt, rows=[row]))
    return effects.exact_measure(groups)


def selection_study(
    study: ScoredIteration,
    score_values: ArtifactRef,
    *,
    share: float,
    steps: int,
    draws: int,
    samples: int | None,
    ranked: bool,
    leave_out: bool = False,
) -> Work:
    """Train equally on selected and on random questions; measure held-out accuracy, exactly if `samples` is None."""
    run, replies = study.run, [] if samples else right_replies(study)
    settings = selection.SelectionSettings(
        step=update_solver.settings_of(run.config, iteration=study.iteration).step,
        share=share,
        steps=steps,
        draws=draws,
        samples=0 if replies else samples or SAMPLES,
        ranked=ranked,
        leave_out=leave_out,
    )

    def answer_held_out(after: Checkpoint) -> list[Rollout]:
        questions = study.rows("held_out", "reference_questions", Question)
        return study.answers(questions, settings.samples, "selection_study/held_out", after)

    def produce(partial_folder: Path, workspace: Path, progress: Progress) -> Outcome:
        rows = selection.run_arms(
            named_rows(run, score_values),
            study.rows("rollouts", "rollouts", Rollout),
            study.trainer,
            study.checkpoint,
            exact_measure(study, replies)
            if replies
            else effects.sampled_measure(answer_held_out, study.checkpoint, workspace),
            settings,
            seed=run.config.seed,
            saved_rows=Pieces(partial_folder, selection.Reached),
            progress=progress,
        )
        arms = Table(row_type=selection.SelectionArm, rows=rows)
        return Outcome(tables={"selection_arms": arms}, summary={"arms": len(rows)})

    return study.work("selection_study", selection.VERSION, settings, produce, named=score_values)
