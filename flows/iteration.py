"""One iteration of Algorithm 2. The generator is updated before the solver, and both read the same solver."""

from dataclasses import dataclass

from infuser_core.recipe import ArtifactRef
from infuser_core.rewards.find import load as load_reward
from tasks import cotraining as phase
from tasks.context import current
from tasks.stage import subflow


@dataclass(frozen=True, slots=True, kw_only=True)
class Players:
    """The two policies between iterations."""

    solver: ArtifactRef
    """theta."""
    generator: ArtifactRef
    """phi."""


@subflow("iteration", "iteration-{number}")
def iteration(run: str, number: int, dev: ArtifactRef, pool: ArtifactRef, players: Players) -> Players:
    """The iteration as a sub-flow."""
    return iterate(run, number, dev, pool, players)


def iterate(run: str, number: int, dev: ArtifactRef, pool: ArtifactRef, players: Players) -> Players:
    """Seven phases, or those that the configuration needs."""
    settings = current(run).history.at(number).cotrain
    if settings.dev_only:
        return _dev_only(run, number, dev, players)
    gradient, scores = None, None
    if settings.generator.update and load_reward(settings.reward.name).needs_influence:
        dev_rollouts = phase.rollout_dev(run, number, dev, players.solver)
        gradient = phase.dev_gradient(run, number, dev_rollouts, players.solver)

    questions = phase.generate_questions(run, number, pool, players.generator)
    answers = phase.rollout_questions(run, number, questions, players.solver)

    generator, solver = players.generator, players.solver
    if settings.generator.update:
        scores = phase.score_influence(run, number, questions, answers, gradient, players.solver)
        generator = phase.update_generator(run, number, questions, scores, players.generator)
    if settings.solver.update:
        solver = phase.update_solver(run, number, questions, answers, scores, players.solver)
    return Players(solver=solver, generator=generator)


def _dev_only(run: str, number: int, dev: ArtifactRef, players: Players) -> Players:
    rollouts = phase.rollout_dev(run, number, dev, players.solver)
    solver = phase.update_solver(run, number, dev, rollouts, None, players.solver)
    return Players(solver=solver, generator=players.generator)
