"""Phase 4: update the generator by DuGRPO with influence scores as rewards (eq:gen_advantage, eq:unified_obj)."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from infuser_core.algorithm.advantage import is_flat
from infuser_core.config.run import RunConfig
from infuser_core.cotrain.phases.parts.not_finite import NotFinite, is_finite, no_finite_data, retry_without_not_finite
from infuser_core.cotrain.phases.training import UpdateSettings, by_group, excluded_questions, update
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
    """rho_inv: reward of a text that is not a valid question."""
    left_out: Sequence[str]
    """Questions that the configuration excludes from this iteration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorUpdate:
    """Result of the generator's update."""

    scores: list[GeneratorScore]
    """Reward and advantage of every generator rollout."""
    updates: list[Update]
    """One row per optimizer step; empty if no group had variance."""
    not_finite: list[NotFinite]
    """Rollouts without a finite reward and documents without a finite gradient."""


def settings_of(config: RunConfig, *, iteration: int) -> GeneratorSettings:
    """Settings of a run that this phase depends on."""
    cotrain = config.cotrain
    return GeneratorSettings(
        step=UpdateSettings.of(cotrain, cotrain.generator, iteration=iteration, max_tokens=cotrain.generator_tokens),
        reward=cotrain.reward.name,
        invalid=cotrain.reward.invalid,
        left_out=excluded_questions(config, iteration),
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
    dev: Sequence[Question] = (),
    progress: Progress = no_progress,
) -> GeneratorUpdate:
    """Turn rewards s(q) or rho_inv into advantages (eq:gen_advantage) and take AdamW steps of M documents each.

    Documents whose rewards have no variance are left out of the steps. `anchor` is the base model for the KL term,
    `dev` the dev questions for rewards that compare with them.
    Raises EngineError if no question has a finite reward, or no document a finite gradient.
    """
    excluded_ids = {row.rollout_id for row in questions if row.question_id in settings.left_out}
    rollouts = [row for row in rollouts if row.rollout_id not in excluded_ids]
    questions = [row for row in questions if row.rollout_id not in excluded_ids]
    rewards = _compute_rewards(rollouts, questions, influence, settings, dev)
    unrewarded = [
        NotFinite(group_id=rollout_id, quantity="reward", value=value, tensor="")
        for rollout_id, value in rewards.items()
        if not is_finite(value)
    ]
    if unrewarded and len(unrewarded) == sum(bool(question.rollout_id) for question in questions):
        raise no_finite_data(unrewarded)
    has_no_direction = bool(influence) and all(row.status == ScoreStatus.NO_DEV_SIGNAL for row in influence)
    all_groups = by_group([row for row in rollouts if is_finite(rewards[row.rollout_id])])

    def attempt(excluded: Collection[str]) -> tuple[dict[str, float], list[str], list[Update]]:
        """Advantages by rollout id, the documents trained on, and the steps."""
        if excluded:
            generator.load(before)
        groups = {document_id: rows for document_id, rows in all_groups.items() if document_id not in excluded}
        by_document = {document_id: [rewards[row.rollout_id] for row in rows] for document_id, rows in groups.items()}
        # sigma_B is the mean over all documents of the batch, before flat ones are removed (the paper's order).
        advantages = dict(zip(groups, settings.step.advantages(list(by_document.values())), strict=True))
        # Without a dev gradient no reward, not even rho_inv, says anything about the target.
        varied = [document_id for document_id, own in by_document.items() if not (has_no_direction or is_flat(own))]
        updates = update(
            Role.GENERATOR,
            generator,
            [groups[document_id] for document_id in varied],
            advantages,
            settings.step,
            flat_share=sum(map(is_flat, by_document.values())) / max(1, len(by_document)),
            workspace=workspace,
            before=before,
            anchor=anchor,
            progress=progress,
        )
        by_rollout = {
            row.rollout_id: advantage
            for document_id, rows in groups.items()
            for row, advantage in zip(rows, advantages[document_id], strict=True)
        }
        return by_rollout, varied, updates

    (advantages, trained, updates), not_finite = retry_without_not_finite(attempt, generator, workspace=workspace)
    scores = [
        GeneratorScore(
            rollout_id=row.rollout_id,
            document_id=row.group_id,
            reward=rewards[row.rollout_id],
            advantage=advantages.get(row.rollout_id, 0.0),
            trained=row.rollout_id in advantages and row.group_id in trained,
        )
        for row in rollouts
    ]
    return GeneratorUpdate(scores=scores, updates=updates, not_finite=[*unrewarded, *not_finite])


def _compute_rewards(
    rollouts: Sequence[Rollout],
    questions: Sequence[Question],
    influence: Sequence[InfluenceScore],
    settings: GeneratorSettings,
    dev: Sequence[Question],
) -> dict[str, float]:
    """The reward of every rollout; NaN for a question whose score the reward needs and is not finite."""
    scores, reward = {row.question_id: row for row in influence}, find_reward(settings.reward)
    # Questions that the pool's rows carry are left out of groups and of rewards that compare questions.
    generated = [question for question in questions if question.rollout_id]
    rated = []
    for question in generated:
        score = scores[question.question_id] if reward.needs_influence else None
        if score is None or (score.status != ScoreStatus.NOT_FINITE and is_finite(score.score)):
            rated.append(question)
    values = reward.of([scores[question.question_id] for question in rated], rated, dev)
    by_rollout = {question.rollout_id: math.nan for question in generated}
    by_rollout |= {question.rollout_id: value for question, value in zip(rated, values, strict=True)}
    return {row.rollout_id: by_rollout.get(row.rollout_id, settings.invalid) for row in rollouts}
