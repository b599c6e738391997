"""Phase 3: compute the optimizer-aware influence score of every valid question (eq:estimated_influence_score)."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np

from infuser_core.algorithm.advantage import centre, is_flat
from infuser_core.algorithm.preset import Objective
from infuser_core.algorithm.score import Score, cosine, score
from infuser_core.config.recorded import Mark
from infuser_core.config.run import RunConfig
from infuser_core.cotrain.phases import dev_gradient
from infuser_core.cotrain.phases.parts.not_finite import (
    NotFinite,
    NotFiniteGroupsError,
    check_gradient,
    diagnose_group,
    is_finite,
    no_finite_data,
    retry_without_not_finite,
)
from infuser_core.cotrain.phases.parts.real_steps import RealSteps, reweighted_measure
from infuser_core.cotrain.phases.training import ObjectiveSettings, UpdateSettings, by_group, logprobs_by_rollout
from infuser_core.protocols import ProbeResult, Progress, Similarity, Trainer, TrainGroup, no_progress
from infuser_core.schemas import Checkpoint, InfluenceScore, Question, Rollout, ScoreStatus, TrainerLogprobs

VERSION = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoringResult:
    """Influence scores, and the solver's log-probabilities from the same forward pass."""

    scores: list[InfluenceScore]
    """One row per question, in order."""
    logprobs: list[TrainerLogprobs]
    """Log-probabilities of the old policy in the solver's update, for every response of a scored question."""
    not_finite: list[NotFinite]
    """Questions without a finite score."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreSettings:
    """Settings that the influence scores depend on."""

    objective: ObjectiveSettings
    """Objective of the solver's update and of the dev gradient."""
    mode: Score
    """Which of the scores is the reward."""
    probe: bool
    """False if the generator's reward needs no influence."""
    share_backward: bool = False
    """Always false, part of the recipe: this pass could formerly serve as the solver's update as well."""
    left_out: Sequence[str] = ()
    """Always empty, for the same reason."""
    step: Annotated[UpdateSettings | None, Mark.NEUTRAL] = None
    """The solver's optimizer and objective if the score is measured by real steps, else None."""
    steps: Annotated[int, Mark.NEUTRAL] = 1
    """Number of these steps."""


def settings_of(config: RunConfig, *, iteration: int, probe: bool) -> ScoreSettings:
    """Settings of a run that this phase depends on."""
    cotrain = config.cotrain
    step = UpdateSettings.of(cotrain, cotrain.solver, iteration=iteration, max_tokens=cotrain.solver_tokens)
    return ScoreSettings(
        objective=dev_gradient.objective_of(config),
        mode=cotrain.influence,
        probe=probe,
        step=step if cotrain.influence == "measured" and probe else None,
        steps=cotrain.influence_steps,
    )


def score_influence(
    questions: Sequence[Question],
    rollouts: Sequence[Rollout],
    solver: Trainer,
    settings: ScoreSettings,
    *,
    reference: Path | None,
    reference_norm: float,
    workspace: Path,
    dev: Sequence[Rollout] = (),
    checkpoint: Checkpoint | None = None,
    include_carried: bool = False,
    progress: Progress = no_progress,
) -> ScoringResult:
    """Score every question q by s(q): by default the cosine of AdamW's step on q and g_dev.

    A measured score is the change of the dev objective after `settings.steps` real steps on q alone, estimated on the
    answers `dev` of g_dev; the solver, which holds `checkpoint`, holds it again afterwards.

    `reference` is the file of g_dev. A question with equal rewards scores 0 without a backward pass, and so do all
    questions if g_dev is 0 or `settings.probe` is false; `status` holds the reason. Questions that the pool's rows
    carry have no generator to reward: they are scored only with `include_carried`.
    Raises EngineError if the reference is not finite, or no score is.
    """
    if reference is not None:
        check_gradient(reference, reference_norm, of="the dev objective")
    unscored = set() if include_carried else {row.question_id for row in questions if not row.rollout_id}
    questions = [row for row in questions if row.question_id not in unscored]
    groups = {name: rows for name, rows in by_group(rollouts).items() if name not in unscored}
    rewards = {name: [row.reward for row in rows] for name, rows in groups.items()}
    varied = {name: rows for name, rows in groups.items() if not is_flat(rewards[name])}
    similarities: dict[str, Similarity] = {}
    changes: dict[str, float] = {}
    logprobs: list[TrainerLogprobs] = []
    not_finite: list[NotFinite] = []
    if settings.probe and reference is not None and reference_norm > 0 and varied:
        if settings.step is not None:
            assert checkpoint is not None, "steps need the checkpoint to which the solver returns"
            changes, not_finite = _measure(varied, solver, settings.step, settings.steps, dev, checkpoint, progress)
        else:
            similarities, logprobs, not_finite = _probe(
                varied, solver, settings.objective, reference, workspace, progress
            )
    excluded = {row.group_id for row in not_finite}
    scores = []
    for question in questions:
        name, rewards_G = question.question_id, rewards[question.question_id]
        status = ScoreStatus.SCORED
        if not settings.probe:
            status = ScoreStatus.NOT_PROBED
        elif reference_norm <= 0:
            status = ScoreStatus.NO_DEV_SIGNAL
        elif is_flat(rewards_G):
            status = ScoreStatus.ZERO_VARIANCE
        if name in excluded:
            status = ScoreStatus.NOT_FINITE
        change = changes.get(name, 0.0)
        scores.append(
            _score_row(name, status, rewards_G, similarities.get(name), change, settings.mode, reference_norm)
        )
    return ScoringResult(scores=scores, logprobs=logprobs, not_finite=not_finite)


def _probe(
    groups: Mapping[str, Sequence[Rollout]],
    solver: Trainer,
    objective: ObjectiveSettings,
    reference: Path,
    workspace: Path,
    progress: Progress,
) -> tuple[dict[str, Similarity], list[TrainerLogprobs], list[NotFinite]]:
    """Products of each question's gradient and g_dev, and the log-probabilities of the same forward pass."""
    train = [objective.train_group(rows, centre([row.reward for row in rows])) for rows in groups.values()]
    # C is computed from the complete batch, even if some of its questions turn out not to be finite.
    constants = objective.constants(groups.values())
    similarities: dict[str, Similarity] = {}

    def attempt(excluded: Collection[str]) -> ProbeResult:
        remaining = [group for group in train if group.group_id not in excluded]
        probed = solver.probe(remaining, constants, reference, progress=progress)
        similarities.update((similarity.group_id, similarity) for similarity in probed.similarities)
        _raise_if_not_finite(remaining, similarities, solver, constants, workspace)
        return probed

    probed, not_finite = retry_without_not_finite(attempt, solver, workspace=workspace)
    computed = logprobs_by_rollout([groups[each.group_id] for each in probed.similarities], probed.logprobs)
    logprobs = [TrainerLogprobs(rollout_id=name, logprobs=values) for name, values in computed.items() if values]
    return similarities, logprobs, not_finite


def _measure(
    groups: Mapping[str, Sequence[Rollout]],
    solver: Trainer,
    step: UpdateSettings,
    count: int,
    dev: Sequence[Rollout],
    checkpoint: Checkpoint,
    progress: Progress,
) -> tuple[dict[str, float], list[NotFinite]]:
    """Change of the dev objective after `count` steps on each question; raises EngineError if none is finite."""
    solver.load(checkpoint)
    measure = reweighted_measure(dev, solver, temperature=step.objective.temperature)
    trial = RealSteps(
        solver=solver,
        checkpoint=checkpoint,
        constants=step.objective.constants(groups.values()),
        step=step,
        measures={"dev": measure},
        # The ratios of unchanged weights are 1.
        before={"dev": np.zeros(len(by_group(dev)))},
        count=count,
    )
    changes: dict[str, float] = {}
    not_finite: list[NotFinite] = []
    for place, (name, group) in enumerate(groups.items(), 1):
        outcome = trial.changes(group)
        if isinstance(outcome, NotFinite):
            not_finite.append(outcome)
        else:
            changes[name] = float(outcome["dev"].mean())
        progress(place, len(groups), 0)
    solver.load(checkpoint)
    if not changes:
        raise no_finite_data(not_finite)
    return changes, not_finite


def _raise_if_not_finite(
    groups: Sequence[TrainGroup],
    similarities: Mapping[str, Similarity],
    solver: Trainer,
    constants: Objective,
    workspace: Path,
) -> None:
    """Raise NotFiniteGroupsError for the groups at fault if some similarity is not finite.

    A group may spoil others in the same pass, so each is computed again alone. If every gradient is finite, the
    optimizer's moments are the cause, and all of these groups are lost.
    """
    broken_values = {}
    for group in groups:
        similarity = similarities[group.group_id]
        parts = (similarity.dot, similarity.raw_dot, similarity.direction_norm, similarity.gradient_norm)
        broken_values[group.group_id] = [part for part in parts if not is_finite(part)]
    unclear = [group for group in groups if broken_values[group.group_id]]
    if not unclear:
        return
    causes = [diagnose_group(solver, group, constants, workspace=workspace) for group in unclear]
    rows = [cause for cause in causes if cause] or [
        NotFinite(group_id=group.group_id, quantity="score", value=broken_values[group.group_id][0], tensor="")
        for group in unclear
    ]
    raise NotFiniteGroupsError(rows, batch_size=len(groups))


def _score_row(
    question_id: str,
    status: ScoreStatus,
    rewards_G: Sequence[float],
    similarity: Similarity | None,
    change: float,
    mode: Score,
    reference_norm: float,
) -> InfluenceScore:
    """The scores of a question from its similarity to g_dev, 0 without one, or the measured change."""
    parts = {
        "dot": similarity.dot if similarity else 0.0,
        "direction_norm": similarity.direction_norm if similarity else 0.0,
        "gradient_norm": similarity.gradient_norm if similarity else 0.0,
        "reference_norm": reference_norm,
    }
    raw_dot = similarity.raw_dot if similarity else 0.0
    return InfluenceScore(
        question_id=question_id,
        status=status,
        score=change if mode == "measured" else score(mode, raw_dot=raw_dot, **parts),
        cosine=cosine(parts["dot"], parts["direction_norm"], reference_norm),
        raw_cosine=cosine(raw_dot, parts["gradient_norm"], reference_norm),
        solver_accuracy=sum(rewards_G) / len(rewards_G),
        **parts,
    )
