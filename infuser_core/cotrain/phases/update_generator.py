"""Phase 4: DuGRPO on the generator with influence scores as rewards (eq:gen_advantage)."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from infuser_core.algorithm.advantage import is_flat
from infuser_core.config.run import RunConfig
from infuser_core.cotrain.phases.parts.not_finite import NotFinite, is_finite, nothing_left, without_lost
from infuser_core.cotrain.phases.training import UpdateSettings, by_group, left_out, update
from infuser_core.cotrain.reward import find_reward
from infuser_core.protocols import Progress, Trainer, no_progress
from infuser_core.schemas import (
    Checkpoint,
    GeneratorScore,
    InfluenceScore,
    Question,
    Role,
    Rollout,
    ScoreStatus,
    Update,
)

VERSION = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorSettings:
    """Settings that the generator's update depends on."""

    step: UpdateSettings
    """Optimizer and objective."""
    reward: str
    """Name of the reward."""
    invalid: float
    """rho_inv."""
    left_out: Sequence[str]
    """Questions that the configuration excludes from this iteration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorUpdate:
    """Result of the generator's update."""

    scores: list[GeneratorScore]
    """Reward and advantage of every generator rollout."""
    updates: list[Update]
    """One row per optimizer step; empty where no group had variance."""
    lost: list[NotFinite]
    """Rollouts without a finite reward and documents without a finite gradient."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Credit:
    """Advantages and steps of one attempt at the update."""

    advantages: Mapping[str, float]
    """By rollout; those that take no part have none."""
    trained: Collection[str]
    """Documents that gave a gradient."""
    updates: list[Update]
    """One row per optimizer step."""


def settings_of(config: RunConfig, *, iteration: int) -> GeneratorSettings:
    """The sub-configuration that the phase is a function of."""
    cotrain = config.cotrain
    return GeneratorSettings(
        step=UpdateSettings.of(cotrain, cotrain.generator, iteration=iteration, max_tokens=cotrain.generator_tokens),
        reward=cotrain.reward.name,
        invalid=cotrain.reward.invalid,
        left_out=left_out(config, iteration),
    )


def update_generator(
    rollouts: Sequence[Rollout],
    questions: Sequence[Question],
    influence: Sequence[InfluenceScore],
    generator: Trainer,
    settings: GeneratorSettings,
    *,
    workspace: Path,
    before: Checkpoint,
    anchor: Checkpoint | None = None,
    progress: Progress = no_progress,
) -> GeneratorUpdate:
    """Rewards to advantages over all documents, flat documents removed, then AdamW steps of M documents.

    Raises EngineError where no question has a finite reward, or no document a finite gradient.
    """
    gone = {row.rollout_id for row in questions if row.question_id in settings.left_out}
    rollouts = [row for row in rollouts if row.rollout_id not in gone]
    questions = [row for row in questions if row.rollout_id not in gone]
    rewards = _rewards(rollouts, questions, influence, settings)
    unrewarded = _unrewarded(rewards, questions)
    blind = bool(influence) and all(row.status == ScoreStatus.NO_DEV_SIGNAL for row in influence)
    groups = by_group([row for row in rollouts if is_finite(rewards[row.rollout_id])])

    def attempt(lost: Collection[str]) -> _Credit:
        if lost:
            generator.load(before)
        kept = {document_id: rows for document_id, rows in groups.items() if document_id not in lost}
        by_document = {document_id: [rewards[row.rollout_id] for row in rows] for document_id, rows in kept.items()}
        # sigma_B is the mean over all documents of the batch, taken before flat ones are removed (paper's order).
        values = dict(zip(kept, settings.step.advantages(list(by_document.values())), strict=True))
        # Without a dev direction the rewards say nothing about the target, rho_inv included.
        trained = [document_id for document_id, own in by_document.items() if not (blind or is_flat(own))]
        updates = update(
            Role.GENERATOR,
            generator,
            [kept[document_id] for document_id in trained],
            values,
            settings.step,
            flat_share=sum(map(is_flat, by_document.values())) / max(1, len(by_document)),
            workspace=workspace,
            before=before,
            anchor=anchor,
            progress=progress,
        )
        by_rollout = {
            row.rollout_id: value
            for document_id, rows in kept.items()
            for row, value in zip(rows, values[document_id], strict=True)
        }
        return _Credit(advantages=by_rollout, trained={*trained}, updates=updates)

    credit, lost = without_lost(attempt, generator, workspace=workspace)
    scores = [_score(row, rewards[row.rollout_id], credit) for row in rollouts]
    return GeneratorUpdate(scores=scores, updates=credit.updates, lost=[*unrewarded, *lost])


def _score(row: Rollout, reward: float, credit: _Credit) -> GeneratorScore:
    return GeneratorScore(
        rollout_id=row.rollout_id,
        document_id=row.group_id,
        reward=reward,
        advantage=credit.advantages.get(row.rollout_id, 0.0),
        trained=row.rollout_id in credit.advantages and row.group_id in credit.trained,
    )


def _unrewarded(rewards: Mapping[str, float], questions: Sequence[Question]) -> list[NotFinite]:
    """Rollouts whose reward is not finite. Raises EngineError where every question's is not."""
    found = [
        NotFinite(group_id=rollout_id, quantity="reward", value=value, tensor="")
        for rollout_id, value in rewards.items()
        if not is_finite(value)
    ]
    if found and len(found) == sum(bool(question.rollout_id) for question in questions):
        raise nothing_left(found)
    return found


def _rewards(
    rollouts: Sequence[Rollout],
    questions: Sequence[Question],
    influence: Sequence[InfluenceScore],
    settings: GeneratorSettings,
) -> dict[str, float]:
    """The reward of every rollout; NaN where it would be made of a score that is not finite."""
    scores, reward = {row.question_id: row for row in influence}, find_reward(settings.reward)
    # Questions that nobody generated take no part: neither in a group nor in a reward that compares questions.
    written = [question for question in questions if question.rollout_id]
    rated = [question for question in written if not reward.needs_influence or _is_rated(scores[question.question_id])]
    values = reward.of([scores[question.question_id] for question in rated], rated)
    by_rollout = {question.rollout_id: math.nan for question in written}
    by_rollout |= {question.rollout_id: value for question, value in zip(rated, values, strict=True)}
    return {row.rollout_id: by_rollout.get(row.rollout_id, settings.invalid) for row in rollouts}


def _is_rated(row: InfluenceScore) -> bool:
    return row.status != ScoreStatus.NOT_FINITE and is_finite(row.score)
