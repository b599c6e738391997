"""The co-training loop: iterations, with a validation every k of them."""

from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial

from flows.iteration import Players, iteration
from infuser_core.store.recipe import ArtifactRef
from tasks import evaluation, training_pool
from tasks.run import current
from tasks.safe_points import Lane, alongside
from tasks.stage import if_stored, subflow


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """Validated solvers, the anchor first."""

    iterations: list[int]
    """Iterations done at each."""
    solvers: list[ArtifactRef]
    """The solver's checkpoint at each."""
    validations: list[ArtifactRef]
    """Validation of each."""


@subflow("cotrain")
def cotrain(run: str, dev: ArtifactRef, validation: ArtifactRef, pool: ArtifactRef) -> Trained:
    """T iterations from one anchor. Iterations that lie in the store as a whole show as one Cached task each."""
    history = current(run).history
    iterations = history.latest.cotrain.iterations
    current(run).console.iterations = iterations
    anchor = training_pool.anchored(run)
    players = Players(solver=anchor, generator=anchor, anchor=anchor)
    validated_at, solvers = [0], [anchor]
    with alongside(run) as lane:
        validations = [lane.start(validated, run, 0, validation, anchor)]
        for number in range(iterations):
            step = partial(_step, lane, run, number, dev, validation, pool, players)
            stored = if_stored(run, f"iteration-{number}", step)
            if stored is None:
                _retain(run, number, validated_at, validations)
            players, due = stored or step()
            if due is not None:
                validated_at.append(number + 1)
                solvers.append(players.solver)
                validations.append(due)
        # Also where every iteration is stored: an attempt may have been stopped behind its last one.
        if iterations:
            _retain(run, iterations, validated_at, validations)
    return Trained(iterations=validated_at, solvers=solvers, validations=[each.result() for each in validations])


def _retain(run: str, done: int, validated_at: list[int], validations: list[Future[ArtifactRef]]) -> None:
    ended = [each.result() if each.done() else None for each in validations]
    evaluation.retain(run, done, dict(zip(validated_at, ended, strict=True)))


def _step(
    lane: Lane,
    run: str,
    number: int,
    dev: ArtifactRef,
    validation: ArtifactRef,
    pool: ArtifactRef,
    players: Players,
) -> tuple[Players, Future[ArtifactRef] | None]:
    """An iteration and, every k of them, the validation of its solver, beside the next one where phases overlap."""
    history = current(run).history
    players = iteration(run, number, dev, pool, players)
    done = number + 1
    due = done % history.at(number).cotrain.validate_every == 0 or done == history.latest.cotrain.iterations
    # One validation at a time, and none beside two iterations: its checkpoint is the next iteration's solver.
    lane.wait()
    return players, lane.start(validated, run, done, validation, players.solver) if due else None


def validated(run: str, iteration: int, validation: ArtifactRef, solver: ArtifactRef) -> ArtifactRef:
    """A checkpoint answers the validation set; then its answers are scored."""
    responses = evaluation.respond(run, iteration, evaluation.VALIDATION, solver, validation)
    return evaluation.validate(run, iteration, responses)
