"""Phase 3: the optimizer-aware influence score of every valid question (eq:estimated_influence_score)."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from infuser_core.algorithm.advantage import centre, is_flat
from infuser_core.algorithm.preset import Objective
from infuser_core.algorithm.score import Influence, cosine, score
from infuser_core.config.run import RunConfig
from infuser_core.cotrain.phases import dev_gradient
from infuser_core.cotrain.phases.parts.not_finite import (
    LostGroupsError,
    NotFinite,
    check_kept,
    flaw,
    is_finite,
    without_lost,
)
from infuser_core.cotrain.phases.training import (
    ObjectiveSettings,
    by_group,
    logprobs_of,
)
from infuser_core.protocols import ProbeResult, Progress, Similarity, Trainer, TrainGroup, no_progress
from infuser_core.schemas import InfluenceScore, Question, Rollout, ScoreStatus, TrainerLogprobs

VERSION = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """One pass over the questions, two uses."""

    scores: list[InfluenceScore]
    """One row per question, in order."""
    logprobs: list[TrainerLogprobs]
    """Old policy of the solver's update, for every response that pass computed."""
    lost: list[NotFinite]
    """Questions without a finite score."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreSettings:
    """Settings that the scores depend on."""

    objective: ObjectiveSettings
    """That of the solver's update and of the dev gradient."""
    mode: Influence
    """Which of the four scores is the reward."""
    probe: bool
    """False where the generator's reward needs no influence."""
    share_backward: bool = False
    """Always false: a part of the recipe since this pass could be the solver's update, too."""
    left_out: Sequence[str] = ()
    """Always empty, for the same reason."""


def settings_of(config: RunConfig, *, iteration: int, probe: bool) -> ScoreSettings:
    """The sub-configuration that the phase is a function of."""
    return ScoreSettings(
        objective=dev_gradient.objective_of(config),
        mode=config.cotrain.influence,
        probe=probe,
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
    every: bool = False,
    progress: Progress = no_progress,
) -> Scored:
    """Questions without a direction score 0 and say why in `status`; they cost nothing in the backward pass.

    Problems that rows carry have no author to reward: they are probed only where `every` question is to be. Raises
    EngineError where the reference is not finite, or no score is.
    """
    if reference is not None:
        check_kept(reference, reference_norm, of="the dev objective")
    unprobed = set() if every else {row.question_id for row in questions if not row.rollout_id}
    questions = [row for row in questions if row.question_id not in unprobed]
    groups = {name: rows for name, rows in by_group(rollouts).items() if name not in unprobed}
    rewards = {group_id: [row.reward for row in rows] for group_id, rows in groups.items()}
    varied = [group_id for group_id in groups if not is_flat(rewards[group_id])]
    found: dict[str, Similarity] = {}
    lost: list[NotFinite] = []
    logprobs: list[TrainerLogprobs] = []
    if settings.probe and reference is not None and reference_norm > 0 and varied:
        grouped = [settings.objective.train_group(groups[name], centre(rewards[name])) for name in varied]
        # C is that of the whole batch, whichever of its questions turn out to be lost.
        constants = settings.objective.constants(groups[group_id] for group_id in varied)
        run = partial(
            _probed,
            grouped,
            solver,
            constants,
            reference,
            found,
            workspace=workspace,
            progress=progress,
        )
        probed, lost = without_lost(run, solver, workspace=workspace)
        probed_ids = [similarity.group_id for similarity in probed.similarities]
        computed = logprobs_of([groups[group_id] for group_id in probed_ids], probed.logprobs)
        logprobs = [TrainerLogprobs(rollout_id=name, logprobs=values) for name, values in computed.items() if values]
    scores = [
        _row(question, rewards[question.question_id], found.get(question.question_id), settings, reference_norm)
        for question in questions
    ]
    gone = {row.group_id for row in lost}
    scores = [replace(row, status=ScoreStatus.NOT_FINITE) if row.question_id in gone else row for row in scores]
    return Scored(scores=scores, logprobs=logprobs, lost=lost)


def _probed(
    every: Sequence[TrainGroup],
    solver: Trainer,
    constants: Objective,
    reference: Path,
    found: dict[str, Similarity],
    lost: Collection[str],
    *,
    workspace: Path,
    progress: Progress,
) -> ProbeResult:
    """One pass without the lost questions; `found` gets what it measured. Raises LostGroupsError for the others."""
    train = [group for group in every if group.group_id not in lost]
    probed = solver.probe(train, constants, reference, progress=progress)
    found.update((similarity.group_id, similarity) for similarity in probed.similarities)
    unclear = [group for group in train if not is_finite(*_parts(found[group.group_id]))]
    if unclear:
        # A question may spoil those that share its pass. Where no gradient is at fault, the optimizer's moments are.
        causes = [flaw(solver, group, constants, workspace=workspace) for group in unclear]
        rows = [cause for cause in causes if cause] or [_unscored(found[group.group_id]) for group in unclear]
        raise LostGroupsError(rows, of=len(train))
    return probed


def _unscored(found: Similarity) -> NotFinite:
    value = next(part for part in _parts(found) if not is_finite(part))
    return NotFinite(group_id=found.group_id, quantity="score", value=value, tensor="")


def _parts(found: Similarity) -> tuple[float, ...]:
    return found.dot, found.raw_dot, found.direction_norm, found.gradient_norm


def _status(rewards_G: Sequence[float], settings: ScoreSettings, reference_norm: float) -> ScoreStatus:
    if not settings.probe:
        return ScoreStatus.NOT_PROBED
    if reference_norm <= 0:
        return ScoreStatus.NO_DEV_SIGNAL
    return ScoreStatus.ZERO_VARIANCE if is_flat(rewards_G) else ScoreStatus.SCORED


def _row(
    question: Question,
    rewards_G: Sequence[float],
    found: Similarity | None,
    settings: ScoreSettings,
    reference_norm: float,
) -> InfluenceScore:
    parts = {
        "dot": found.dot if found else 0.0,
        "direction_norm": found.direction_norm if found else 0.0,
        "gradient_norm": found.gradient_norm if found else 0.0,
        "reference_norm": reference_norm,
    }
    raw_dot = found.raw_dot if found else 0.0
    return InfluenceScore(
        question_id=question.question_id,
        status=_status(rewards_G, settings, reference_norm),
        score=score(settings.mode, raw_dot=raw_dot, **parts),
        cosine=cosine(parts["dot"], parts["direction_norm"], reference_norm),
        raw_cosine=cosine(raw_dot, parts["gradient_norm"], reference_norm),
        solver_accuracy=sum(rewards_G) / len(rewards_G),
        **parts,
    )
