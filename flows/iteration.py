"""One iteration of co-training (Algorithm 2): update the generator, then the solver; both phases use the old solver."""

from concurrent.futures import Future
from dataclasses import dataclass, replace

from infuser_core.cotrain.reward import needs_influence
from infuser_core.store.recipe import ArtifactRef
from tasks import cotraining as phase
from tasks import training_pool
from tasks.interrupts import Lane, alongside
from tasks.run import current_run
from tasks.stage import subflow
from tasks.training_pool import BudgetRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Players:
    """Checkpoints of solver and generator between iterations, with what the next iteration needs."""

    solver: ArtifactRef
    """Checkpoint of the solver, theta."""
    generator: ArtifactRef
    """Checkpoint of the generator, phi."""
    anchor: ArtifactRef
    """The checkpoint of the pre-trained base model, from which both roles start."""
    questions: ArtifactRef | None = None
    """Questions of the last iteration, if prompts show questions of earlier iterations."""
    recent: tuple[BudgetRecord, ...] = ()
    """Records of the iterations in the window of an adaptive budget, oldest first."""


@subflow("iteration", "iteration-{number}")
def iteration(run: str, number: int, dev: ArtifactRef, pool: ArtifactRef, players: Players) -> Players:
    """Run the phases of iteration `number` that the configuration needs. Returns the updated players."""
    settings = current_run(run).history.at(number).cotrain
    solver, generator, anchor = players.solver, players.generator, players.anchor
    if settings.dev_only:
        rollouts = phase.rollout_dev(run, number, dev, solver)
        return replace(players, solver=phase.update_solver(run, number, dev, rollouts, None, solver, anchor))

    allocation = scores = update = None
    with alongside(run) as lane:
        # Phase 1: the gradient of the dev set. Phase 2: questions from documents, and the solver's answers.
        gradient = _dev_gradient(lane, run, number, dev, solver)
        if settings.budget.mode == "bandit":
            allocation = training_pool.allocate(run, number, pool, players.recent)
        questions = phase.generate_questions(run, number, pool, generator, allocation, players.questions)
        answers = phase.rollout_questions(run, number, questions, solver, pool)
        if settings.key_solver is not None:
            phase.check_keys(run, number, questions)
    with alongside(run) as lane:
        # Phase 3: the influence of each question. Phase 4: the generator's update. Phase 5: the solver's update.
        if settings.updates("generator", number):
            scores = phase.score_influence(run, number, questions, answers, gradient.result(), solver)
            update = lane.hand_over(phase.update_generator, run, number, questions, scores, generator, anchor, dev)
        if settings.updates("solver", number):
            solver = phase.update_solver(run, number, questions, answers, scores, solver, anchor)

    recent = players.recent
    if allocation is not None and scores is not None:
        record = BudgetRecord(allocation=allocation, questions=questions, scores=scores)
        recent = (*recent, record)[-settings.budget.window :]
    return replace(
        players,
        solver=solver,
        generator=update.result() if update else generator,
        recent=recent,
        questions=questions if settings.examples and settings.examples.earlier else None,
    )


def _dev_gradient(
    lane: Lane, run: str, number: int, dev: ArtifactRef, solver: ArtifactRef
) -> Future[ArtifactRef | None]:
    """Start the gradient of the solver's dev answers (phases 1a and 1b); None if the generator's update needs none."""
    settings = current_run(run).history.at(number).cotrain
    if not (settings.updates("generator", number) and needs_influence(settings)):
        return lane.start(lambda: None)

    def differentiate(rollouts: ArtifactRef) -> ArtifactRef:
        return phase.dev_gradient(run, number, rollouts, solver)

    if current_run(run).overlaps:
        return lane.start(lambda: differentiate(phase.rollout_dev(run, number, dev, solver)))
    # Only the gradient's file is written in parallel to phase 2.
    return lane.hand_over(differentiate, phase.rollout_dev(run, number, dev, solver))
