"""Co-training loop (Algorithm 2): T iterations from one base model, validated after every `validate_every` of them."""

from concurrent.futures import Future
from functools import partial

from flows.iteration import Players, iteration
from infuser_core.store.recipe import ArtifactRef
from tasks import evaluation, training_pool
from tasks.interrupts import Lane, alongside
from tasks.run import current_run
from tasks.stage import if_stored, subflow


@subflow("cotrain", "co-training of {run}")
def cotrain(
    run: str, dev: ArtifactRef, validation: ArtifactRef, pool: ArtifactRef
) -> tuple[dict[int, ArtifactRef], dict[int, ArtifactRef]]:
    """Train both roles for all iterations. Returns validated solvers and their validations by completed iterations.

    0 is the anchor (the pre-trained base model). An iteration that is stored completely is shown as one Cached task.
    """
    iterations = current_run(run).history.latest.cotrain.iterations
    current_run(run).console.iterations = iterations
    anchor = training_pool.make_anchor(run)
    players = Players(solver=anchor, generator=anchor, anchor=anchor)
    solvers = {0: anchor}
    with alongside(run) as lane:
        validations = {0: lane.start(validate, run, 0, validation, anchor)}
        for number in range(iterations):
            step = partial(_step, lane, run, number, dev, validation, pool, players)
            stored = if_stored(run, f"iteration-{number}", step)
            if stored is None:
                _retain(run, number, validations)
            players, pending = stored or step()
            if pending is not None:
                solvers[number + 1] = players.solver
                validations[number + 1] = pending
        # Needed even if every iteration is stored: an attempt may have been stopped after the last one.
        if iterations:
            _retain(run, iterations, validations)
    return solvers, {completed: future.result() for completed, future in validations.items()}


def _retain(run: str, completed: int, validations: dict[int, Future[ArtifactRef]]) -> None:
    available = {number: future.result() if future.done() else None for number, future in validations.items()}
    evaluation.retain(run, completed, available)


def _step(
    lane: Lane,
    run: str,
    number: int,
    dev: ArtifactRef,
    validation: ArtifactRef,
    pool: ArtifactRef,
    players: Players,
) -> tuple[Players, Future[ArtifactRef] | None]:
    """Run an iteration and, if it is due, start the validation of its solver, which may overlap the next iteration."""
    history = current_run(run).history
    players = iteration(run, number, dev, pool, players)
    completed = number + 1
    is_due = completed % history.at(number).cotrain.validate_every == 0
    # Wait for the previous validation: it may overlap one iteration only.
    lane.wait()
    if not (is_due or completed == history.latest.cotrain.iterations):
        return players, None
    return players, lane.start(validate, run, completed, validation, players.solver)


def validate(run: str, completed: int, validation: ArtifactRef, solver: ArtifactRef) -> ArtifactRef:
    """Validate a checkpoint after `completed` iterations: collect its answers, then score them."""
    responses = evaluation.respond(run, completed, evaluation.VALIDATION, solver, validation)
    return evaluation.validate(run, completed, responses)
