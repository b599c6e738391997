"""Phase 4: DuGRPO on the generator with influence scores as rewards (eq:gen_advantage)."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from infuser_core import plugins
from infuser_core.algorithm.advantage import is_flat
from infuser_core.algorithm.shaping import generator_reward
from infuser_core.config.run import RunConfig
from infuser_core.engines.protocols import Progress, Trainer, no_progress
from infuser_core.phases.training import UpdateSettings, by_group, left_out, update
from infuser_core.schemas import GeneratorScore, InfluenceScore, Question, Role, Rollout, ScoreStatus, Update

VERSION = 2


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


def settings_of(config: RunConfig, *, iteration: int) -> GeneratorSettings:
    """The sub-configuration that the phase is a function of."""
    cotrain = config.cotrain
    return GeneratorSettings(
        step=UpdateSettings.of(cotrain, cotrain.generator, max_tokens=cotrain.generator_tokens),
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
    first_step: int,
    progress: Progress = no_progress,
) -> GeneratorUpdate:
    """Rewards to advantages over all documents, flat documents removed, then AdamW steps of M documents."""
    gone = {row.rollout_id for row in questions if row.question_id in settings.left_out}
    rollouts = [row for row in rollouts if row.rollout_id not in gone]
    questions = [row for row in questions if row.rollout_id not in gone]
    groups = by_group(rollouts)
    rewards = _rewards(rollouts, questions, influence, settings)
    rewards_by_group = [[rewards[row.rollout_id] for row in rows] for rows in groups.values()]
    # sigma_B is the mean over all documents of the batch, taken before flat ones are removed (paper's order).
    values = settings.step.advantages(rewards_by_group)
    by_id = dict(zip(groups, values, strict=True))
    blind = bool(influence) and all(row.status == ScoreStatus.NO_DEV_SIGNAL for row in influence)
    # Without a dev direction the rewards say nothing about the target, rho_inv included.
    flat = {group_id for group_id, group in zip(groups, rewards_by_group, strict=True) if blind or is_flat(group)}
    trained = [rows for group_id, rows in groups.items() if group_id not in flat]
    updates = update(
        Role.GENERATOR,
        generator,
        trained,
        by_id,
        settings.step,
        workspace=workspace,
        first_step=first_step,
        progress=progress,
    )
    scores = [
        GeneratorScore(
            rollout_id=row.rollout_id,
            document_id=group_id,
            reward=rewards[row.rollout_id],
            advantage=advantage,
            trained=group_id not in flat,
        )
        for group_id, rows in groups.items()
        for row, advantage in zip(rows, by_id[group_id], strict=True)
    ]
    return GeneratorUpdate(scores=scores, updates=updates)


def _rewards(
    rollouts: Sequence[Rollout],
    questions: Sequence[Question],
    influence: Sequence[InfluenceScore],
    settings: GeneratorSettings,
) -> dict[str, float]:
    scores = {row.question_id: row for row in influence}
    # Questions that nobody generated take no part: neither in a group nor in a reward that compares questions.
    written = [question for question in questions if question.rollout_id]
    values = plugins.reward(settings.reward).of([scores[question.question_id] for question in written], written)
    by_rollout = {question.rollout_id: value for question, value in zip(written, values, strict=True)}
    return {
        row.rollout_id: generator_reward(by_rollout.get(row.rollout_id), invalid_penalty=settings.invalid)
        for row in rollouts
    }
