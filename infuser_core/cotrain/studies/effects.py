"""Measure the effects of real steps on questions, and how well scores predict them.

Two more measures for `RealSteps`: the exact probability of known replies, and sampled accuracy.
"""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from infuser_core.algorithm.advantage import is_flat
from infuser_core.cotrain.phases.parts.not_finite import no_finite_data
from infuser_core.cotrain.phases.parts.real_steps import Measure, RealSteps
from infuser_core.cotrain.phases.training import UpdateSettings, by_group
from infuser_core.cotrain.studies.candidates import (
    PAPER,
    NamedScore,
    questions_with_direction,
    ranks_within,
    values_by_score,
)
from infuser_core.evaluation.resumable_sampling import SavedRows
from infuser_core.evaluation.statistics.correlation import RankCorrelation, rank_correlations
from infuser_core.protocols import Progress, Trainer, TrainGroup, no_progress
from infuser_core.schemas import Checkpoint, InfluenceScore, NotFinite, Rollout
from infuser_core.seeding import seed_of

VERSION = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectSettings:
    """Settings of the study of effects: the optimizer step and the numbers of samples."""

    step: UpdateSettings
    """The solver's own optimizer and objective."""
    questions: int
    """Scored questions sampled."""
    answers: int
    """New answers sampled for each step; with 0, the step uses the answers that were scored."""
    rollouts: int
    """Rollouts per dev and held-out question, if the measure needs them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """Change of one measure after a step on one question."""

    question_id: str
    """Question stepped on."""
    measure: str
    """Quantity that was measured."""
    change: float
    """Mean change over the measure's questions."""
    error: float
    """Standard error of that mean."""
    accuracy: float
    """Share of right answers among those of the step; without variance there is no step and no change."""


def sample_questions(scores: Sequence[InfluenceScore], count: int, *, seed: int) -> list[InfluenceScore]:
    """Draw a seeded sample of scored questions, in their original order."""
    rows = questions_with_direction(scores)
    places = random.Random(seed_of(seed, "influence_study")).sample(range(len(rows)), min(count, len(rows)))
    return [rows[place] for place in sorted(places)]


def step_effects(
    names: Sequence[str],
    answers: Sequence[Rollout],
    solver: Trainer,
    checkpoint: Checkpoint,
    measures: Mapping[str, Measure],
    step: UpdateSettings,
    *,
    saved_rows: SavedRows[Effect] | None = None,
    progress: Progress = no_progress,
) -> tuple[list[Effect], list[NotFinite]]:
    """Take a step on each question in `names` and measure its effects; those in `saved_rows` are not measured again.

    The trainer holds `checkpoint` afterwards. Raises EngineError if no question has a finite step and change.
    """
    groups = by_group(answers)
    # The same batch as for the scores: questions whose rewards vary.
    varied = [rows for rows in groups.values() if not is_flat([row.reward for row in rows])]
    solver.load(checkpoint)
    trial = RealSteps(
        solver=solver,
        checkpoint=checkpoint,
        constants=step.objective.constants(varied),
        step=step,
        measures=measures,
        before={name: measure(solver) for name, measure in measures.items()},
    )
    effects = saved_rows.rows() if saved_rows else []
    saved_ids = {row.question_id for row in effects}
    not_finite: list[NotFinite] = []
    for count, name in enumerate(names, 1):
        if name in saved_ids:
            continue
        rewards = [answer.reward for answer in groups[name]]
        changes = {each: np.zeros(1) for each in measures} if is_flat(rewards) else trial.changes(groups[name])
        if isinstance(changes, NotFinite):
            not_finite.append(changes)
        else:
            new = [
                Effect(
                    question_id=name,
                    measure=measure,
                    change=float(values.mean()),
                    error=float(values.std(ddof=1)) / math.sqrt(values.size) if values.size > 1 else 0.0,
                    accuracy=sum(rewards) / len(rewards),
                )
                for measure, values in changes.items()
            ]
            effects += new
            if saved_rows:
                saved_rows.add(new)
        progress(count, len(names), 0)
    solver.load(checkpoint)
    if not_finite and not effects:
        raise no_finite_data(not_finite)
    return effects, not_finite


def exact_measure(replies: Sequence[TrainGroup]) -> Measure:
    """Build a measure: mean teacher-forced probability of a question's known replies at temperature 1."""

    def measure(solver: Trainer) -> np.ndarray:
        logprobs = solver.logprobs(replies, temperature=1.0)
        return np.array([np.mean([math.exp(sum(row)) for row in group]) for group in logprobs])

    return measure


def sampled_measure(
    answer: Callable[[Checkpoint], Sequence[Rollout]], checkpoint: Checkpoint, workspace: Path
) -> Measure:
    """Build a measure: share of right answers per question; saves the weights in `workspace` for `answer` to sample."""

    def measure(solver: Trainer) -> np.ndarray:
        with TemporaryDirectory(dir=workspace) as folder:
            step, name = solver.save(Path(folder)), f"{checkpoint.checkpoint_id}+{Path(folder).name}"
            answers = answer(Checkpoint(checkpoint_id=name, role=checkpoint.role, path=folder, step=step))
        return np.array([np.mean([row.reward for row in rows]) for rows in by_group(answers).values()])

    return measure


def correlations(effects: Sequence[Effect], scores: Sequence[NamedScore]) -> list[RankCorrelation]:
    """Spearman's rho of every score with every measured change; for labelled questions also within cells."""
    cell_of = {row.question_id: row.cell for row in scores}
    result = []
    for measure in dict.fromkeys(row.measure for row in effects):
        rows = [row for row in effects if row.measure == measure]
        values = {name: [own[row.question_id] for row in rows] for name, own in values_by_score(scores).items()}
        values = {PAPER: values[PAPER]} | values
        changes = [row.change for row in rows]
        result += rank_correlations(values, {measure: changes})
        cells = [cell_of[row.question_id] for row in rows]
        if all(cells):
            # Without scores that are constant within cells, such as the label oracle.
            ranks_of = {name: ranks for name, each in values.items() if any(ranks := ranks_within(each, cells))}
            result += rank_correlations(ranks_of, {f"{measure}, within cells": ranks_within(changes, cells)})
    return result
