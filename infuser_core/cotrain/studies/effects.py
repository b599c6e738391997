"""The worth of a question: its real AdamW step on a throw-away copy, and the change that follows.

Three measures of a trainer's weights, each a value per question [Q]: the exact probability of known replies; the
objective estimated on fixed rollouts of the unchanged policy, reweighted by sequence-level importance ratios, which is
unbiased, has common random numbers for all questions, and is quiet for a single small step; and sampled accuracy.
"""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from infuser_core.algorithm.advantage import centre, is_flat
from infuser_core.algorithm.preset import Objective
from infuser_core.cotrain.phases.parts.not_finite import flawed, is_finite, nothing_left
from infuser_core.cotrain.phases.training import UpdateSettings, by_group, train_group
from infuser_core.cotrain.studies.candidates import PAPER, NamedScore, by_name, scored, within
from infuser_core.evaluation.drawing import Kept
from infuser_core.evaluation.statistics.correlation import RankCorrelation, rank_correlations
from infuser_core.protocols import Progress, Trainer, TrainGroup, no_progress
from infuser_core.schemas import Checkpoint, InfluenceScore, NotFinite, Rollout
from infuser_core.seeding import seed_of

VERSION = 7

Measure = Callable[[Trainer], np.ndarray]
"""Values of a trainer's weights, one per question [Q]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectSettings:
    """Size and noise of the study."""

    step: UpdateSettings
    """The solver's own optimizer and objective."""
    questions: int
    """Scored questions sampled."""
    answers: int
    """Fresh answers that a step is taken on; 0 takes it on those that were scored."""
    rollouts: int
    """Rollouts per dev and held-out question, where the measure needs them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """Change of one measure by one question's step."""

    question_id: str
    """Question stepped on."""
    measure: str
    """Quantity that was measured."""
    change: float
    """Mean change over the measure's questions."""
    error: float
    """Its standard error over them."""
    accuracy: float
    """Share of right answers among those stepped on; without variance there is no step and no change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """Result of the study."""

    effects: list[Effect]
    """One per question and measure."""
    lost: list[NotFinite]
    """Questions whose step, or what it changed, is not finite: nothing was measured."""


def sample_questions(scores: Sequence[InfluenceScore], count: int, *, seed: int) -> list[InfluenceScore]:
    """A seeded sample of scored questions, in their order."""
    rows = scored(scores)
    chosen = random.Random(seed_of(seed, "influence_study")).sample(range(len(rows)), min(count, len(rows)))
    return [rows[index] for index in sorted(chosen)]


def step_effects(
    names: Sequence[str],
    answers: Sequence[Rollout],
    solver: Trainer,
    checkpoint: Checkpoint,
    measures: Mapping[str, Measure],
    step: UpdateSettings,
    *,
    kept: Kept[Effect] | None = None,
    progress: Progress = no_progress,
) -> Effects:
    """One step per named question that `kept` has no effects of; the trainer ends where it started.

    Raises EngineError where no question's step, or nothing that it changed, is finite.
    """
    groups = by_group(answers)
    # The batch of the scores: questions whose rewards vary.
    varied = [rows for rows in groups.values() if not is_flat([row.reward for row in rows])]
    constants = step.objective.constants(varied)
    solver.load(checkpoint)
    before = {name: measure(solver) for name, measure in measures.items()}
    effects = kept.rows() if kept else []
    known = {row.question_id for row in effects}
    lost: list[NotFinite] = []
    for done, name in enumerate(names, 1):
        if name in known:
            continue
        rewards = [answer.reward for answer in groups[name]]
        changes = {each: np.zeros(1) for each in measures}
        gone = None
        if not is_flat(rewards):
            solver.load(checkpoint)
            gone = _stepped(groups[name], solver, constants, step)
            if gone is None:
                changes = {each: measure(solver) - before[each] for each, measure in measures.items()}
                odd = [value.mean() for value in changes.values() if not is_finite(float(value.mean()))]
                gone = NotFinite(group_id=name, quantity="change", value=odd[0], tensor="") if odd else None
        if gone is not None:
            lost.append(gone)
        else:
            found = [_effect(name, each, values, rewards) for each, values in changes.items()]
            effects += found
            if kept:
                kept.add(found)
        progress(done, len(names), 0)
    solver.load(checkpoint)
    if lost and not effects:
        raise nothing_left(lost)
    return Effects(effects=effects, lost=lost)


def _stepped(group: Sequence[Rollout], solver: Trainer, constants: Objective, step: UpdateSettings) -> NotFinite | None:
    """Take the question's step; what is not finite, if anything."""
    train = step.objective.train_group(group, centre([answer.reward for answer in group]))
    solver.zero_grad()
    loss = solver.forward_backward([train], constants, denominator=1).loss
    norm = solver.optim_step(step.learning_rate) if is_finite(loss) else math.nan
    return None if is_finite(norm) else flawed(train.group_id, loss, norm)


def _effect(name: str, measure: str, values: np.ndarray, rewards: Sequence[float]) -> Effect:
    spread = float(values.std(ddof=1)) if values.size > 1 else 0.0
    return Effect(
        question_id=name,
        measure=measure,
        change=float(values.mean()),
        error=spread / math.sqrt(values.size),
        accuracy=sum(rewards) / len(rewards),
    )


def exact(replies: Sequence[TrainGroup]) -> Measure:
    """Teacher-forced probability of known replies at temperature 1, the mean over those of a question."""

    def measured(solver: Trainer) -> np.ndarray:
        found = solver.logprobs(replies, temperature=1.0)
        return np.array([np.mean([math.exp(sum(row)) for row in group]) for group in found])

    return measured


def reweighted(rollouts: Sequence[Rollout], solver: Trainer, *, temperature: float) -> Measure:
    """mean_i (w_i - 1)(r_i - mean r) of every question, w the ratio to the weights that `solver` now holds."""
    groups = by_group(rollouts)
    # A question whose answers all have one reward does not move to first order, and tells nothing.
    varied = [rows for rows in groups.values() if not is_flat([row.reward for row in rows])]
    train = [train_group(rows, [0.0] * len(rows)) for rows in varied]

    def sums(held: Trainer) -> list[list[float]]:
        found = held.logprobs(train, temperature=temperature)
        return [[sum(logprobs_T) for logprobs_T in group] for group in found]

    before = sums(solver)

    def measured(held: Trainer) -> np.ndarray:
        values = np.zeros(len(groups))
        for place, (rows, news, olds) in enumerate(zip(varied, sums(held), before, strict=True)):
            credits = centre([row.reward for row in rows])
            values[place] = np.mean([math.expm1(n - o) * c for n, o, c in zip(news, olds, credits, strict=True)])
        return values

    return measured


def sampled(answer: Callable[[Checkpoint], Sequence[Rollout]], checkpoint: Checkpoint, workspace: Path) -> Measure:
    """Share of right answers to every question: the weights are saved into `workspace` for `answer` to sample from."""

    def measured(solver: Trainer) -> np.ndarray:
        with TemporaryDirectory(dir=workspace) as folder:
            step, name = solver.save(Path(folder)), f"{checkpoint.checkpoint_id}+{Path(folder).name}"
            answers = answer(Checkpoint(checkpoint_id=name, role=checkpoint.role, path=folder, step=step))
        return np.array([np.mean([row.reward for row in rows]) for rows in by_group(answers).values()])

    return measured


def correlations(effects: Sequence[Effect], named: Sequence[NamedScore]) -> list[RankCorrelation]:
    """Spearman's rho of every score with every measured change; where questions are labelled, within cells as well."""
    cells = {row.question_id: row.cell for row in named}
    found = []
    for measure in dict.fromkeys(row.measure for row in effects):
        rows = [row for row in effects if row.measure == measure]
        values = {name: [own[row.question_id] for row in rows] for name, own in by_name(named).items()}
        values = {PAPER: values[PAPER]} | values
        changes = [row.change for row in rows]
        found += rank_correlations(values, {measure: changes})
        own = [cells[row.question_id] for row in rows]
        if all(own):
            # Without those that are one with the cells, such as the label oracle.
            inside = {name: ranks for name, each in values.items() if any(ranks := within(each, own))}
            found += rank_correlations(inside, {f"{measure}, within cells": within(changes, own)})
    return found
