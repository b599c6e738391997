"""Stages of a co-training iteration: each reads its input tables, calls its phase and writes its output tables."""

from dataclasses import replace
from pathlib import Path

from infuser_core.config.corpus import EndpointModel
from infuser_core.cotrain.phases import check_keys as check_phase
from infuser_core.cotrain.phases import dev_gradient as gradient_phase
from infuser_core.cotrain.phases import generate_questions as generate_phase
from infuser_core.cotrain.phases import rollout_dev as dev_phase
from infuser_core.cotrain.phases import rollout_questions as answer_phase
from infuser_core.cotrain.phases import score_influence as score_phase
from infuser_core.cotrain.phases import update_generator as generator_phase
from infuser_core.cotrain.phases import update_solver as solver_phase
from infuser_core.cotrain.phases.parts.few_shot import load_examples
from infuser_core.cotrain.phases.training import SharedBackward
from infuser_core.cotrain.reward import find_reward
from infuser_core.cotrain.route import generator_templates
from infuser_core.evaluation.anchors import NamedModel, named_model
from infuser_core.evaluation.resumable_sampling import Drawn
from infuser_core.evaluation.statistics.key_accuracy import key_accuracy, majority_votes
from infuser_core.protocols import Progress
from infuser_core.schemas import (
    GeneratorScore,
    Gradient,
    InfluenceScore,
    Question,
    QuestionLabel,
    Role,
    Rollout,
    ScoreStatus,
    TrainerLogprobs,
    Update,
)
from infuser_core.store import pruned
from infuser_core.store.pieces import Pieces
from infuser_core.store.recipe import ArtifactRef
from infuser_core.store.store import Outcome, Table
from tasks.rollouts import (
    add_key_accuracy,
    add_labels,
    answers_of,
    counts,
    explain_no_questions,
    questions_of,
    rollouts_outcome,
    solver_outcome,
    steps_of,
)
from tasks.run import Run
from tasks.stage import stage
from tasks.training_pool import budget_of, documents_of, problems_of, warn_of_small_pool
from tasks.work import Work, add_not_finite

_STATE = (pruned.MOMENTS, pruned.WEIGHTS)


@stage("rollout_dev")
def rollout_dev(run: Run, iteration: int, dev: ArtifactRef, solver: ArtifactRef) -> Work:
    """Let the solver answer the dev questions (phase 1a)."""
    settings = dev_phase.settings_of(run.config)

    def produce(workspace: Path, progress: Progress) -> Outcome:
        rollouts = dev_phase.rollout_dev(
            run.store.rows(dev, "reference_questions", Question),
            run.pool.sampler(run.checkpoint(solver, Role.SOLVER)),
            settings,
            checkpoint_id=solver.id,
            seed=run.config.seed,
            iteration=iteration,
            saved_rows=Pieces(run.store.partial(recipe), Drawn),
            progress=progress,
        )
        return rollouts_outcome(rollouts)

    inputs = {"dev": dev, "solver": solver}
    recipe = run.recipe("rollout_dev", dev_phase.VERSION, settings, inputs, iteration=iteration, seed=run.config.seed)
    return Work(recipe=recipe, produce=produce)


@stage("dev_gradient")
def dev_gradient(run: Run, iteration: int, rollouts: ArtifactRef, solver: ArtifactRef) -> Work:
    """Compute the gradient of the solver's dev answers (phase 1b)."""
    settings = gradient_phase.settings_of(run.config)

    def produce(workspace: Path, progress: Progress) -> Outcome:
        facts, not_finite = gradient_phase.dev_gradient(
            run.store.rows(rollouts, "rollouts", Rollout),
            run.pool.trainer(run.checkpoint(solver, Role.SOLVER)),
            settings,
            workspace=workspace,
            progress=progress,
        )
        status = "ok" if facts.norm > 0 else "dev signal exhausted: every dev group has zero variance"
        outcome = Outcome(
            tables={"gradients": Table(row_type=Gradient, rows=[facts])},
            summary={"norm": facts.norm, "accuracy": facts.accuracy, "status": status},
        )
        return add_not_finite(outcome, not_finite)

    inputs = {"rollouts": rollouts, "solver": solver}
    recipe = run.recipe("dev_gradient", gradient_phase.VERSION, settings, inputs, iteration=iteration)
    return Work(recipe=recipe, produce=produce, needs=lambda: _bytes_of(run, solver, pruned.WEIGHTS))


def _bytes_of(run: Run, checkpoint: ArtifactRef, *parts: str) -> int:
    """Bytes of a checkpoint's parts; a gradient or checkpoint computed from it takes the same space."""
    return pruned.recorded_bytes(run.store.manifest(checkpoint).files, *parts)


@stage("generate_questions")
def generate_questions(
    run: Run,
    iteration: int,
    pool: ArtifactRef,
    generator: ArtifactRef,
    allocation: ArtifactRef | None = None,
    before: ArtifactRef | None = None,
) -> Work:
    """Let the generator write questions (phase 2a); `before`: earlier questions as examples; `allocation`: budget."""
    writer = _writer(run, generator)
    author = {"generator": generator} if run.config.cotrain.generator.model is None else {}
    settings = generate_phase.settings_of(run.config, writer=writer.identity, iteration=iteration)
    number = 0 if settings.frozen_batch else iteration
    if generate_phase.depends_on_pool(run.config):
        rows = documents_of(run.store, pool)
        budget = budget_of(run, number, rows, allocation)
        settings = generate_phase.with_pool(settings, run.config, rows, iteration=iteration, budget=budget)

    def produce(workspace: Path, progress: Progress) -> Outcome:
        documents = documents_of(run.store, pool)
        warn_of_small_pool(run, documents)
        earlier = run.store.rows(before, "earlier_questions", Question) if before else []
        generated = generate_phase.generate_questions(
            documents,
            writer.sampler() if generator_templates(run.config) else None,
            settings,
            checkpoint_id=writer.name,
            seed=run.config.seed,
            iteration=iteration,
            exclude=generate_phase.excluded_documents(run.config, documents),
            problems=problems_of(run.store, pool),
            examples=load_examples(run.config, earlier),
            earlier=earlier,
            budget=budget_of(run, number, documents, allocation),
            saved_rows=Pieces(run.store.partial(recipe), Drawn),
            progress=progress,
        )
        tables = {
            "rollouts": Table(row_type=Rollout, rows=generated.rollouts),
            "questions": Table(row_type=Question, rows=generated.questions),
            "question_labels": Table(row_type=QuestionLabel, rows=generated.labels),
        }
        if settings.examples.get("earlier"):
            tables["earlier_questions"] = Table(row_type=Question, rows=generated.earlier)
        return Outcome(
            tables=tables,
            summary={
                "written": len(generated.rollouts),
                # Given questions of the pool have no rollout and are not counted.
                "valid": sum(bool(question.rollout_id) for question in generated.questions),
                **explain_no_questions(generated.rollouts),
            },
        )

    inputs = {"pool": pool, **author, "allocation": allocation, "before": before}
    version = generate_phase.VERSION
    recipe = run.recipe("generate_questions", version, settings, inputs, iteration=iteration, seed=run.config.seed)
    return Work(recipe=recipe, produce=produce)


def _writer(run: Run, generator: ArtifactRef) -> NamedModel:
    """The model that writes questions: the configured one, else the generator's checkpoint, an input of the recipe."""
    source = run.config.cotrain.generator.model
    if source is None:
        return NamedModel(
            name=generator.id,
            identity={},
            chat=lambda: run.pool.chat(run.checkpoint(generator, Role.GENERATOR)),
            sampler=lambda: run.pool.sampler(run.checkpoint(generator, Role.GENERATOR)),
        )
    model = named_model(source, run.config.engine, run.pool, label="model", role=Role.GENERATOR)
    return replace(model, name=model.identity["model"]) if isinstance(source, EndpointModel) else model


@stage("rollout_questions")
def rollout_questions(
    run: Run,
    iteration: int,
    questions: ArtifactRef,
    solver: ArtifactRef,
    pool: ArtifactRef | None = None,
) -> Work:
    """Let the solver answer the questions (phase 2b); with `labels: document`, a teacher also reads the pool."""
    settings = answer_phase.settings_of(run.config)
    reading = pool if settings.labels == "document" else None

    def produce(workspace: Path, progress: Progress) -> Outcome:
        rows = run.store.rows(questions, "questions", Question)
        rollouts, labels = answer_phase.rollout_questions(
            rows,
            run.pool.sampler(run.checkpoint(solver, Role.SOLVER)),
            settings,
            checkpoint_id=solver.id,
            seed=run.config.seed,
            iteration=iteration,
            documents={row.document_id: row.text for row in documents_of(run.store, reading)} if reading else None,
            saved_rows=Pieces(run.store.partial(recipe), Drawn),
            progress=progress,
        )
        outcome = rollouts_outcome(rollouts)
        votes = majority_votes(rows, rollouts)
        if settings.labels != "reference":
            outcome, votes = add_labels(outcome, labels), [label.agrees for label in labels]
        # Questions from files, as in `infuser score`, have no labels of an oracle.
        has_oracle = "question_labels" in run.store.manifest(questions).rows
        by_oracle = run.store.rows(questions, "question_labels", QuestionLabel) if has_oracle else []
        return add_key_accuracy(outcome, run, key_accuracy(by_oracle, votes))

    inputs = {"questions": questions, "solver": solver, "pool": reading}
    version = answer_phase.VERSION
    recipe = run.recipe("rollout_questions", version, settings, inputs, iteration=iteration, seed=run.config.seed)
    return Work(recipe=recipe, produce=produce)


@stage("check_keys")
def check_keys(run: Run, iteration: int, questions: ArtifactRef) -> Work:
    """Let a strong solver answer the questions, to measure how many keys are right; no other phase uses the result."""
    source = run.config.cotrain.key_solver
    assert source is not None, "the flow calls this stage only with a key solver"
    model = named_model(source, run.config.engine, run.pool, label="key-solver", role=Role.SOLVER)
    settings = check_phase.settings_of(run.config, solver=model.identity)

    def produce(workspace: Path, progress: Progress) -> Outcome:
        rollouts, keys = check_phase.check_keys(
            run.store.rows(questions, "questions", Question),
            model.sampler(),
            settings,
            checkpoint_id=model.name,
            seed=run.config.seed,
            iteration=iteration,
            saved_rows=Pieces(run.store.partial(recipe), Drawn),
            progress=progress,
        )
        return add_key_accuracy(rollouts_outcome(rollouts), run, keys)

    inputs = {"questions": questions}
    recipe = run.recipe("check_keys", check_phase.VERSION, settings, inputs, iteration=iteration, seed=run.config.seed)
    return Work(recipe=recipe, produce=produce)


@stage("score_influence")
def score_influence(
    run: Run,
    iteration: int,
    questions: ArtifactRef,
    rollouts: ArtifactRef,
    gradient: ArtifactRef | None,
    solver: ArtifactRef,
) -> Work:
    """Compute the influence score of every generated question on the solver (phase 3)."""
    settings = score_phase.settings_of(run.config, iteration=iteration, probe=gradient is not None)

    def produce(workspace: Path, progress: Progress) -> Outcome:
        reference = run.store.path(gradient, gradient_phase.FILE) if gradient else None
        norm = run.store.rows(gradient, "gradients", Gradient)[0].norm if gradient else 0.0
        checkpoint = run.checkpoint(solver, Role.SOLVER)
        scored = score_phase.score_influence(
            run.store.rows(questions, "questions", Question),
            run.store.rows(rollouts, "rollouts", Rollout),
            run.pool.trainer(checkpoint),
            settings,
            reference=reference,
            reference_norm=norm,
            workspace=workspace,
            dev=answers_of(run.store, gradient) if gradient and settings.step else (),
            checkpoint=checkpoint,
            progress=progress,
        )
        scores = scored.scores
        finite = [row.score for row in scores if row.status != ScoreStatus.NOT_FINITE]
        mean = sum(finite) / max(1, len(finite))
        outcome = Outcome(
            tables={
                "scores": Table(row_type=InfluenceScore, rows=scores),
                "trainer_logprobs": Table(row_type=TrainerLogprobs, rows=scored.logprobs),
                "shared_backwards": Table(row_type=SharedBackward, rows=[]),
            },
            summary={"mean_score": mean, "statuses": counts([row.status for row in scores])},
        )
        return add_not_finite(outcome, scored.not_finite)

    inputs = {"questions": questions, "rollouts": rollouts, "gradient": gradient, "solver": solver}
    recipe = run.recipe("score_influence", score_phase.VERSION, settings, inputs, iteration=iteration)
    return Work(recipe=recipe, produce=produce)


@stage("update_generator")
def update_generator(
    run: Run,
    iteration: int,
    questions: ArtifactRef,
    scores: ArtifactRef,
    generator: ArtifactRef,
    anchor: ArtifactRef,
    dev: ArtifactRef,
) -> Work:
    """Update the generator with optimizer steps on its rewards (phase 4)."""
    settings = generator_phase.settings_of(run.config, iteration=iteration)
    needs_dev = find_reward(settings.reward).needs_dev

    def produce(workspace: Path, progress: Progress) -> Outcome:
        before = run.checkpoint(generator, Role.GENERATOR)
        update = generator_phase.update_generator(
            run.store.rows(questions, "rollouts", Rollout),
            run.store.rows(questions, "questions", Question),
            run.store.rows(scores, "scores", InfluenceScore),
            run.pool.trainer(before, for_update=True),
            settings,
            workspace=workspace,
            before=before,
            anchor=run.checkpoint(anchor, Role.GENERATOR) if settings.step.kl else None,
            dev=run.store.rows(dev, "reference_questions", Question) if needs_dev else (),
            progress=progress,
        )
        outcome = Outcome(
            tables={
                "generator_scores": Table(row_type=GeneratorScore, rows=update.scores),
                "updates": Table(row_type=Update, rows=update.updates),
            },
            summary=steps_of(before.step, update.updates),
        )
        return add_not_finite(outcome, update.not_finite)

    reference = anchor if settings.step.kl else None
    inputs = {"questions": questions, "scores": scores, "generator": generator, "anchor": reference}
    inputs |= {"dev": dev} if needs_dev else {}
    recipe = run.recipe("update_generator", generator_phase.VERSION, settings, inputs, iteration=iteration)
    return Work(recipe=recipe, produce=produce, role=Role.GENERATOR, needs=lambda: _bytes_of(run, generator, *_STATE))


@stage("update_solver")
def update_solver(
    run: Run,
    iteration: int,
    questions: ArtifactRef,
    rollouts: ArtifactRef,
    scores: ArtifactRef | None,
    solver: ArtifactRef,
    anchor: ArtifactRef,
) -> Work:
    """Update the solver with optimizer steps (phase 5); log-probabilities stored in `scores` save a forward pass."""
    settings = solver_phase.settings_of(run.config, iteration=iteration)

    def produce(workspace: Path, progress: Progress) -> Outcome:
        before = run.checkpoint(solver, Role.SOLVER)
        update = solver_phase.update_solver(
            questions_of(run.store, questions),
            run.store.rows(rollouts, "rollouts", Rollout),
            run.pool.trainer(before, for_update=True),
            settings,
            workspace=workspace,
            before=before,
            anchor=run.checkpoint(anchor, Role.SOLVER) if settings.step.kl else None,
            old_logprobs=run.store.rows(scores, "trainer_logprobs", TrainerLogprobs) if scores else (),
            progress=progress,
        )
        return solver_outcome(before.step, update, settings)

    reference = anchor if settings.step.kl else None
    inputs = {"questions": questions, "rollouts": rollouts, "scores": scores, "solver": solver, "anchor": reference}
    recipe = run.recipe("update_solver", solver_phase.VERSION, settings, inputs, iteration=iteration)
    return Work(recipe=recipe, produce=produce, role=Role.SOLVER, needs=lambda: _bytes_of(run, solver, *_STATE))
