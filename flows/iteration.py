"""One iteration of Algorithm 2. The generator is updated before the solver, and both read the same solver."""

from concurrent.futures import Future
from dataclasses import dataclass, replace

from infuser_core.cotrain.reward import find_reward
from infuser_core.store.recipe import ArtifactRef
from tasks import cotraining as phase
from tasks import training_pool
from tasks.run import current
from tasks.safe_points import Lane, alongside
from tasks.stage import subflow
from tasks.training_pool import Measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Players:
    """The two policies between iterations."""

    solver: ArtifactRef
    """Checkpoint of the solver, theta."""
    generator: ArtifactRef
    """Checkpoint of the generator, phi."""
    anchor: ArtifactRef
    """The checkpoint that both began from."""
    questions: ArtifactRef | None = None
    """The last questions, where prompts draw from those of earlier iterations."""
    recent: tuple[Measured, ...] = ()
    """Measured iterations of an adaptive budget's window, the last one last."""


@subflow("iteration", "iteration-{number}")
def iteration(run: str, number: int, dev: ArtifactRef, pool: ArtifactRef, players: Players) -> Players:
    """Seven phases, or those that the configuration needs."""
    settings = current(run).history.at(number).cotrain
    if settings.dev_only:
        return _dev_only(run, number, dev, players)
    scores = None
    with alongside(run) as lane:
        gradient = _dev_gradient(lane, run, number, dev, players)
        bandit = settings.budget.mode == "bandit"
        allocation = training_pool.allocate(run, number, pool, players.recent) if bandit else None
        questions = phase.generate_questions(run, number, pool, players.generator, allocation, players.questions)
        answers = phase.rollout_questions(run, number, questions, players.solver, pool)
        if settings.key_solver is not None:
            phase.check_keys(run, number, questions)

    generator, solver = None, players.solver
    with alongside(run) as lane:
        if settings.updates("generator", number):
            scores = phase.score_influence(run, number, questions, answers, gradient.result(), players.solver)
            given = (questions, scores, players.generator, players.anchor)
            generator = lane.hand_over(phase.update_generator, run, number, *given)
        if settings.updates("solver", number):
            solver = phase.update_solver(run, number, questions, answers, scores, players.solver, players.anchor)
    recent = players.recent
    if allocation is not None and scores is not None:
        measured = Measured(allocation=allocation, questions=questions, scores=scores)
        recent = (*recent, measured)[-settings.budget.window :]
    written = generator.result() if generator else players.generator
    shown = questions if settings.examples and settings.examples.earlier else None
    return replace(players, solver=solver, generator=written, recent=recent, questions=shown)


def _dev_gradient(lane: Lane, run: str, number: int, dev: ArtifactRef, players: Players) -> Future[ArtifactRef | None]:
    """The direction that the generator is rewarded for, where its reward looks at it."""
    settings = current(run).history.at(number).cotrain
    if not (settings.updates("generator", number) and find_reward(settings.reward.name).needs_influence):
        return lane.start(lambda: None)

    def answer() -> ArtifactRef:
        return phase.rollout_dev(run, number, dev, players.solver)

    def differentiate(rollouts: ArtifactRef) -> ArtifactRef:
        return phase.dev_gradient(run, number, rollouts, players.solver)

    if current(run).overlaps:
        return lane.start(lambda: differentiate(answer()))
    # Only its file is written beside what follows.
    return lane.hand_over(differentiate, answer())


def _dev_only(run: str, number: int, dev: ArtifactRef, players: Players) -> Players:
    rollouts = phase.rollout_dev(run, number, dev, players.solver)
    solver = phase.update_solver(run, number, dev, rollouts, None, players.solver, players.anchor)
    return replace(players, solver=solver)
