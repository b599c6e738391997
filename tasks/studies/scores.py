"""Stages of studies of the score: every score's values, what one question's step changes, what selections reach."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from infuser_core.config.phase_table import Phase
from infuser_core.config.recorded import recorded
from infuser_core.cotrain.phases import dev_gradient, rollout_dev, update_generator, update_solver
from infuser_core.cotrain.studies import candidates, effects, gradients, selection
from infuser_core.engines.protocols import Progress, Trainer, TrainGroup, TrainRow
from infuser_core.errors import UsageError
from infuser_core.evaluation.answering import answer_questions, messages_of
from infuser_core.evaluation.statistics.correlation import RankCorrelation
from infuser_core.schemas import Checkpoint, InfluenceScore, Question, QuestionLabel, Role, Rollout
from infuser_core.store.catalogue import Catalogue
from infuser_core.store.journal import Journal
from infuser_core.store.pieces import Pieces
from infuser_core.store.recipe import ArtifactRef
from infuser_core.store.store import Outcome, Table
from tasks.run import Run
from tasks.work import Work, execute, with_lost

Produce = Callable[[Path, Path, Progress], Outcome]
SAMPLES = 8
"""Answers per held-out question where the right reply is not known beforehand."""
EFFECT_ROLLOUTS = 64
"""Answers per held-out question of the effects that gradients are compared with, where no exact measure exists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Studied:
    """One iteration of a run and what its scores were made from."""

    run: Run
    """The run, opened."""
    iteration: int
    """Its iteration."""
    inputs: Mapping[str, ArtifactRef]
    """scores, solver, questions, rollouts, gradient, dev, held_out."""
    reply: str = ""
    """A right reply with the slot {answer}, for questions that are not the lab's; its probability is then measured."""

    def rows(self, name: str, table: str, kind: type[Any]) -> list[Any]:
        """Rows of a table of one of them."""
        return self.run.store.rows(self.inputs[name], table, kind)

    @property
    def checkpoint(self) -> Checkpoint:
        """The solver that was scored."""
        return self.run.checkpoint(self.inputs["solver"], Role.SOLVER)

    @property
    def trainer(self) -> Trainer:
        """The trainer that holds it."""
        return self.run.pool.trainer(self.checkpoint)

    def answers(
        self, questions: list[Question], samples: int, scope: str, checkpoint: Checkpoint | None = None
    ) -> list[Rollout]:
        """New answers of the solver, or of another checkpoint, in a draw of their own."""
        asked = checkpoint or self.checkpoint
        return answer_questions(
            questions,
            self.run.pool.sampler(asked),
            replace(rollout_dev.settings_of(self.run.config), samples=samples),
            checkpoint_id=asked.checkpoint_id,
            seed=self.run.config.seed,
            scope=scope,
        )

    def made(self, work: Work, table: str, kind: type[Any]) -> list[Any]:
        """Rows of a table that a stage of a study makes, or made before."""
        return self.run.store.rows(execute(self.run, work).ref, table, kind)

    def work(self, phase: str, version: int, settings: Any, produce: Produce, **more: ArtifactRef) -> Work:
        """A stage of a study: a function of these inputs, and of `more`; `produce` also gets a folder for what outlives
        a kill."""
        values = recorded(settings) | ({"reply": self.reply} if self.reply else {})
        inputs, seed = {**self.inputs, **more}, self.run.config.seed
        recipe = self.run.recipe(phase, version, values, inputs, iteration=self.iteration, seed=seed)
        return Work(recipe=recipe, produce=partial(produce, self.run.store.partial(recipe)))


def studied(run: Run, iteration: int) -> Studied:
    """The iteration's scores and, along their lineage, their origins. Raises UsageError where it has none."""
    latest = Journal(run.store.root, run.name).latest()
    scored = [entry for entry in latest if entry.phase == Phase.SCORE_INFLUENCE and entry.iteration == iteration]
    validated = [entry for entry in latest if entry.phase == Phase.VALIDATE]
    if not scored or not validated:
        raise UsageError(
            f"run {run.name} has no influence scores in iteration {iteration}",
            hint="choose an iteration that `infuser status --stages` lists with score_influence",
        )
    catalogue, scores = Catalogue(run.store.root), scored[-1].key
    own = {name: catalogue.input(scores, name) for name in ("solver", "questions", "rollouts", "gradient")}
    dev_rollouts = catalogue.input(own["gradient"].key, "rollouts")
    responses = catalogue.input(validated[-1].key, "responses")
    given = {
        "dev": catalogue.input(dev_rollouts.key, "dev"),
        "held_out": catalogue.input(responses.key, "validation"),
    }
    return Studied(run=run, iteration=iteration, inputs={"scores": catalogue.record(scores).ref, **own, **given})


def named_scores(asked: Studied) -> ArtifactRef:
    """Every score of the iteration's questions, made or found."""
    run, objective = asked.run, dev_gradient.objective_of(asked.run.config)
    labelled = "question_labels" in run.store.manifest(asked.inputs["questions"]).rows

    def produce(kept: Path, workspace: Path, progress: Progress) -> Outcome:
        with TemporaryDirectory(dir=workspace) as folder:
            rows = candidates.named_scores(
                asked.rows("scores", "scores", InfluenceScore),
                asked.rows("rollouts", "rollouts", Rollout),
                asked.rows("dev", "reference_questions", Question),
                asked.rows("questions", "question_labels", QuestionLabel) if labelled else [],
                asked.trainer,
                asked.checkpoint,
                objective,
                reference=run.store.path(asked.inputs["gradient"], dev_gradient.FILE),
                workspace=Path(folder),
                kept=Pieces(kept, candidates.NamedScore),
                progress=progress,
            )
        table = Table(row_type=candidates.NamedScore, rows=rows)
        return Outcome(tables={"named_scores": table}, summary={"scores": len(rows)})

    return execute(run, asked.work("named_scores", candidates.VERSION, objective, produce)).ref


def named_rows(run: Run, ref: ArtifactRef) -> list[candidates.NamedScore]:
    """The rows that `named_scores` made."""
    return run.store.rows(ref, "named_scores", candidates.NamedScore)


def prediction_study(asked: Studied, named: ArtifactRef, *, questions: int, answers: int, rollouts: int) -> Work:
    """Real steps on single questions and rank correlations with every score, on fresh answers where any are asked."""
    run, seed = asked.run, asked.run.config.seed
    step = update_solver.settings_of(run.config, iteration=asked.iteration).step
    settings = effects.EffectSettings(step=step, questions=questions, answers=answers, rollouts=rollouts)

    def produce(kept: Path, workspace: Path, progress: Progress) -> Outcome:
        sample = effects.sample_questions(asked.rows("scores", "scores", InfluenceScore), questions, seed=seed)
        names = [row.question_id for row in sample]
        fresh = [row for row in asked.rows("questions", "questions", Question) if row.question_id in {*names}]
        answered = asked.rows("rollouts", "rollouts", Rollout)
        if answers:
            answered = asked.answers(fresh, answers, "prediction_study/step")
        replies = _replies(asked) if answers else []
        measures = {"held_out": _known(asked, replies)} if replies else _reweighted(asked, settings)
        found = effects.step_effects(
            names,
            answered,
            asked.trainer,
            asked.checkpoint,
            measures,
            step,
            kept=Pieces(kept, effects.Effect),
            progress=progress,
        )
        correlations = effects.correlations(found.effects, named_rows(run, named))
        made = Outcome(
            tables={
                "question_effects": Table(row_type=effects.Effect, rows=found.effects),
                "score_correlations": Table(row_type=RankCorrelation, rows=correlations),
            },
            summary={"questions": len(names)},
        )
        return with_lost(made, found.lost)

    return asked.work("prediction_study", effects.VERSION, settings, produce, named=named)


def _reweighted(asked: Studied, settings: effects.EffectSettings) -> dict[str, effects.Measure]:
    """Measures by answers to held-out questions and, where the scored answers are stepped on, to the dev set."""
    parts = ["held_out"] if settings.answers else ["dev", "held_out"]
    panels = {
        name: asked.answers(
            asked.rows(name, "reference_questions", Question), settings.rollouts, f"prediction_study/panel/{name}"
        )
        for name in parts
    }
    trainer = asked.trainer
    trainer.load(asked.checkpoint)
    temperature = settings.step.objective.temperature
    return {name: effects.reweighted(rows, trainer, temperature=temperature) for name, rows in panels.items()}


def gradient_study(asked: Studied, named: ArtifactRef, *, documents: int, batches: int, answers: int) -> Work:
    """The generator's gradient by reward and advantage, against that of the real effects of all scored questions."""
    run = asked.run
    writer = Catalogue(run.store.root).input(asked.inputs["questions"].key, "generator")
    own = update_generator.settings_of(run.config, iteration=asked.iteration)
    settings = gradients.GradientSettings(
        objective=own.step.objective, documents=documents, batches=batches, invalid=own.invalid
    )
    everything = len(asked.rows("questions", "questions", Question))
    measured = prediction_study(asked, named, questions=everything, answers=answers, rollouts=EFFECT_ROLLOUTS)
    effect_rows = execute(run, measured).ref

    def produce(kept: Path, workspace: Path, progress: Progress) -> Outcome:
        rollouts = asked.rows("questions", "rollouts", Rollout)
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
        found = run.store.rows(effect_rows, "question_effects", effects.Effect)
        rows = gradients.gradient_quality(
            rollouts,
            asked.rows("questions", "questions", Question),
            asked.rows("scores", "scores", InfluenceScore),
            {row.question_id: row.change for row in found},
            products,
            settings,
            seed=run.config.seed,
        )
        table = Table(row_type=gradients.GradientQuality, rows=rows)
        return Outcome(tables={"gradient_quality": table}, summary={"rows": len(rows)})

    return asked.work("gradient_study", gradients.VERSION, settings, produce, generator=writer, effects=effect_rows)


def _replies(asked: Studied) -> list[str]:
    """The right reply to every held-out question; none where one of them is unknown."""
    from infuser_core.nano.exact import sound_reply

    questions = asked.rows("held_out", "reference_questions", Question)
    replies = [asked.reply.replace("{answer}", row.answer) if asked.reply else sound_reply(row) for row in questions]
    return replies if all(replies) else []


def _known(asked: Studied, replies: list[str]) -> effects.Measure:
    """The exact measure: the probability of these replies, their end included, to the held-out questions."""
    tokenizer = asked.run.pool.sampler(asked.checkpoint).tokenizer
    end = [] if tokenizer.end_token is None else [tokenizer.end_token]
    profile = rollout_dev.settings_of(asked.run.config).prompts
    groups = []
    for question, reply in zip(asked.rows("held_out", "reference_questions", Question), replies, strict=True):
        tokens = tokenizer.encode(reply) + end
        row = TrainRow(token_ids=tokens, advantage=0.0, sampler_logprobs=[0.0] * len(tokens))
        prompt = tokenizer.render(messages_of(question, prompts=profile))
        groups.append(TrainGroup(group_id=question.question_id, prompt_token_ids=prompt, rows=[row]))
    return effects.exact(groups)


def selection_study(
    asked: Studied, named: ArtifactRef, *, share: float, steps: int, draws: int, samples: int | None, ranked: bool
) -> Work:
    """Equal training on chosen and random questions, measured on held-out ones; without `samples` exactly."""
    run, replies = asked.run, [] if samples else _replies(asked)
    settings = selection.SelectionSettings(
        step=update_solver.settings_of(run.config, iteration=asked.iteration).step,
        share=share,
        steps=steps,
        draws=draws,
        samples=0 if replies else samples or SAMPLES,
        ranked=ranked,
    )

    def answered(after: Checkpoint) -> list[Rollout]:
        questions = asked.rows("held_out", "reference_questions", Question)
        return asked.answers(questions, settings.samples, "selection_study/held_out", after)

    def produce(kept: Path, workspace: Path, progress: Progress) -> Outcome:
        rows = selection.run_arms(
            named_rows(run, named),
            asked.rows("rollouts", "rollouts", Rollout),
            asked.trainer,
            asked.checkpoint,
            _known(asked, replies) if replies else effects.sampled(answered, asked.checkpoint, workspace),
            settings,
            seed=run.config.seed,
            kept=Pieces(kept, selection.Reached),
            progress=progress,
        )
        arms = Table(row_type=selection.SelectionArm, rows=rows)
        return Outcome(tables={"selection_arms": arms}, summary={"arms": len(rows)})

    return asked.work("selection_study", selection.VERSION, settings, produce, named=named)
