"""The gradient work of one iteration, as the phases ask for it."""

from dataclasses import dataclass, replace
from pathlib import Path

from workload import Trainers

from infuser_core.engines.local.trainer import LocalTrainer
from infuser_core.engines.protocols import TrainGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class Iteration:
    """The gradient work of one iteration, after zero-variance groups are gone."""

    dev: list[TrainGroup]
    questions: list[TrainGroup]
    documents: list[TrainGroup]
    minibatch: int
    """Groups per optimizer step of the solver; the generator takes half as many."""


def dev_gradient(engine: LocalTrainer, made: Trainers, work: Iteration, path: Path) -> None:
    engine.zero_grad()
    engine.forward_backward(work.dev, made.objective, denominator=len(work.dev))
    engine.keep_gradient(path)
    engine.zero_grad()


def update(
    engine: LocalTrainer,
    made: Trainers,
    groups: list[TrainGroup],
    minibatch: int,
    logprobs: list[list[list[float]]] | None = None,
) -> None:
    """Steps of `minibatch` groups. Learning rate 0: the work of a step, and the same state for the next repeat."""
    if logprobs is None:
        logprobs = engine.logprobs(groups, temperature=made.objective.temperature)
    old = [_with_old(group, rows) for group, rows in zip(groups, logprobs, strict=True)]
    for start in range(0, len(old), minibatch):
        batch = old[start : start + minibatch]
        engine.zero_grad()
        engine.forward_backward(batch, made.objective, denominator=len(batch))
        engine.optim_step(0.0)


def _with_old(group: TrainGroup, logprobs: list[list[float]]) -> TrainGroup:
    # Rows of advantage 0 are not trained on, and the scoring pass has no log-probabilities for them.
    rows = [replace(row, old_logprobs=values or None) for row, values in zip(group.rows, logprobs, strict=True)]
    return replace(group, rows=rows)


def iteration(engine: LocalTrainer, made: Trainers, work: Iteration, path: Path, *, reuse: bool) -> None:
    """Dev gradient, scoring, both updates; `reuse` takes the solver's old log-probabilities from scoring."""
    dev_gradient(engine, made, work, path)
    probed = engine.probe_once(work.questions, made.objective, path)
    update(engine, made, work.documents, max(1, work.minibatch // 2))
    update(engine, made, work.questions, work.minibatch, probed.logprobs if reuse else None)
