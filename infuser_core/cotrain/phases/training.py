"""Training steps for generator and solver: rollouts as training groups, and minibatch AdamW steps on eq:unified_obj."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, make_dataclass, replace
from itertools import groupby
from pathlib import Path

from infuser_core.algorithm.advantage import advantages
from infuser_core.algorithm.preset import Objective, Overlong, Preset, RatioLevel, length_norm, step_denominator
from infuser_core.config.roles import OptimizerSettings, RoleSettings
from infuser_core.config.run import CotrainSettings, RunConfig
from infuser_core.cotrain.phases.parts.not_finite import HINT, is_finite, raise_for_groups
from infuser_core.errors import EngineError
from infuser_core.protocols import Progress, StepReport, Trainer, TrainGroup, TrainRow, no_progress
from infuser_core.schemas import TOKEN_MEANS, Checkpoint, Rollout, Update


def by_group(rollouts: Sequence[Rollout]) -> dict[str, list[Rollout]]:
    """Split rollouts by group id, in order; rows of one group are consecutive in every artifact."""
    return {group_id: list(rows) for group_id, rows in groupby(rollouts, key=lambda rollout: rollout.group_id)}


def train_group(
    rollouts: Sequence[Rollout],
    advantages_G: Sequence[float],
    old_logprobs: Mapping[str, Sequence[float]] | None = None,
    anchor_logprobs: Mapping[str, Sequence[float]] | None = None,
) -> TrainGroup:
    """Build a training group from rollouts and their advantages; rows without tokens (prompt too long) are left out.

    By rollout id: `old_logprobs` of the policy before an update of several steps, `anchor_logprobs` for a loss with a
    KL divergence to the anchor.
    """
    rows = [
        TrainRow(
            token_ids=rollout.token_ids,
            advantage=advantage,
            sampler_logprobs=rollout.sampler_logprobs,
            old_logprobs=old_logprobs.get(rollout.rollout_id) if old_logprobs else None,
            anchor_logprobs=anchor_logprobs[rollout.rollout_id] if anchor_logprobs else None,
        )
        for rollout, advantage in zip(rollouts, advantages_G, strict=True)
        if rollout.token_ids
    ]
    return TrainGroup(group_id=rollouts[0].group_id, prompt_token_ids=rollouts[0].prompt_token_ids, rows=rows)


def excluded_questions(config: RunConfig, iteration: int) -> list[str]:
    """Ids of the excluded questions of one iteration; they begin with its number."""
    return sorted({name for name in config.cotrain.exclude_questions if name.startswith(f"{iteration}/")})


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveSettings:
    """Settings of the clipped objective (eq:unified_obj) for one role.

    Not LossSettings itself: recipes record exactly these fields, with the preset resolved.
    """

    clip_low: float
    """Lower clip range of the importance ratio."""
    clip_high: float
    """Upper clip range."""
    tis_cap: float | None
    """Cap of the truncated importance weight."""
    ratio: RatioLevel
    """Importance ratios per token, or one per response."""
    overlong: Overlong
    """Credit of responses that end at the length limit."""
    options: Preset
    """Named options of the algorithm."""
    max_tokens: int
    """Longest generation: C of the paper's form, tokens."""
    temperature: float
    """Sampling temperature of the rollouts."""

    @classmethod
    def of(cls, cotrain: CotrainSettings, *, max_tokens: int) -> "ObjectiveSettings":
        """The objective of the role whose generations have at most `max_tokens` tokens."""
        return cls(
            clip_low=cotrain.loss.clip_low,
            clip_high=cotrain.loss.clip_high,
            tis_cap=cotrain.loss.tis_cap,
            ratio=cotrain.loss.ratio,
            overlong=cotrain.loss.overlong,
            options=cotrain.options(),
            max_tokens=max_tokens,
            temperature=cotrain.sampling.temperature,
        )

    def constants(self, groups: Iterable[Sequence[Rollout]]) -> Objective:
        """Constants of the objective for a batch of groups, whose response lengths may determine C."""
        lengths = [len(rollout.token_ids) for rows in groups for rollout in rows]
        return Objective(
            clip_low=self.clip_low,
            clip_high=self.clip_high,
            dual_clip=self.options.dual_clip,
            tis_cap=self.tis_cap,
            tis_form=self.options.tis_form,
            ratio=self.ratio,
            length_norm=length_norm(lengths, mode=self.options.length_norm, max_tokens=self.max_tokens),
            temperature=self.temperature,
        )

    def train_group(
        self,
        rollouts: Sequence[Rollout],
        advantages_G: Sequence[float],
        old_logprobs: Mapping[str, Sequence[float]] | None = None,
        anchor_logprobs: Mapping[str, Sequence[float]] | None = None,
    ) -> TrainGroup:
        """Build a training group like the function `train_group`, with advantages masked by `mask_overlong`."""
        return train_group(rollouts, self.mask_overlong(rollouts, advantages_G), old_logprobs, anchor_logprobs)

    def mask_overlong(self, rollouts: Sequence[Rollout], advantages_G: Sequence[float]) -> list[float]:
        """Advantages of a group's rows; with `overlong: mask`, 0 for rows cut at the limit (DAPO, sec. 3.4)."""
        masked = self.overlong == "mask"
        return [
            0.0 if masked and rollout.finish_reason == "length" else advantage
            for rollout, advantage in zip(rollouts, advantages_G, strict=True)
        ]


def logprobs_by_rollout(
    groups: Sequence[Sequence[Rollout]], computed: Sequence[Sequence[Sequence[float]]]
) -> dict[str, Sequence[float]]:
    """The trainer's log-probabilities by rollout id; `computed` has one list per row with tokens of each group."""
    return {
        rollout.rollout_id: logprobs_T
        for rows, group in zip(groups, computed, strict=True)
        for rollout, logprobs_T in zip((row for row in rows if row.token_ids), group, strict=True)
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateSettings:
    """Settings that an update of a role depends on."""

    learning_rate: float
    """Step size."""
    minibatch: int
    """M: groups per optimizer step."""
    advantage: str
    """Name of the advantage estimator."""
    objective: ObjectiveSettings
    optimizer: OptimizerSettings
    kl: float = 0.0
    """Weight of the KL divergence to the anchor."""
    entropy: float = 0.0
    """Weight of the policy's entropy."""

    @classmethod
    def of(cls, cotrain: CotrainSettings, role: RoleSettings, *, iteration: int, max_tokens: int) -> "UpdateSettings":
        """The update settings of one role in an iteration."""
        return cls(
            learning_rate=role.step_size(iteration, iterations=cotrain.iterations),
            minibatch=role.minibatch,
            advantage=role.advantage,
            objective=ObjectiveSettings.of(cotrain, max_tokens=max_tokens),
            optimizer=cotrain.optimizer,
            kl=cotrain.loss.kl,
            entropy=cotrain.loss.entropy,
        )

    def advantages(self, rewards: Sequence[Sequence[float]]) -> list[list[float]]:
        """The configured advantage of every row of every group."""
        options = self.objective.options
        return advantages(
            rewards,
            normaliser=options.normaliser(self.advantage),
            sigma_b=options.sigma_b,
            single_row=options.single_row,
        )


_SHARED = ("num_groups", "num_responses", "cut", "flat_share", "num_tokens", "loss", *TOKEN_MEANS)
_COLUMNS = {field.name: field.type for field in fields(Update)}
SharedBackward = make_dataclass("SharedBackward", [(name, _COLUMNS[name]) for name in _SHARED])
"""Row of a table that is always empty: the scoring pass could once be the solver's update, too."""


def update(
    role: str,
    trainer: Trainer,
    groups: Sequence[Sequence[Rollout]],
    advantages: Mapping[str, Sequence[float]],
    settings: UpdateSettings,
    *,
    flat_share: float,
    workspace: Path,
    before: Checkpoint,
    anchor: Checkpoint | None = None,
    old_logprobs: Mapping[str, Sequence[float]] | None = None,
    progress: Progress = no_progress,
) -> list[Update]:
    """Train in one pass over the groups, an AdamW step on eq:unified_obj per minibatch, and save into `workspace`.

    With several steps the policy moves away from the one that sampled: the trainer's log-probabilities before the
    first step are the old policy of the ratio. `old_logprobs`, by rollout id, supplies those that an earlier pass over
    the same checkpoint computed. With one step, old and current policy coincide.

    The trainer holds `before`; for a KL divergence to the `anchor` it loads the anchor first, then `before` again.

    Raises NotFiniteGroupsError for groups that are not finite: the trainer's weights may then have changed, and nothing
    is saved.
    """
    constants = replace(settings.objective.constants(groups), kl=settings.kl, entropy=settings.entropy)
    anchor_logprobs = None
    if settings.kl and anchor:
        trainer.load(anchor)
        anchor_logprobs = _compute_logprobs(trainer, groups, constants)
        trainer.load(before)
    size, mode = settings.minibatch, settings.objective.options.partial_minibatch
    batches = [groups[start : start + size] for start in range(0, len(groups), size)]
    old = None
    if len(batches) > 1:
        old = {**(old_logprobs or {})}
        missing = [rows for rows in groups if any(row.token_ids and row.rollout_id not in old for row in rows)]
        if missing:
            old |= _compute_logprobs(trainer, missing, constants)
    updates: list[Update] = []
    total = sum(len(rollout.token_ids) for rows in groups for rollout in rows)
    tokens = 0
    for batch in batches:
        step = before.step + sum(not row.skipped for row in updates)
        train = [
            settings.objective.train_group(rows, advantages[rows[0].group_id], old, anchor_logprobs) for rows in batch
        ]
        trainer.zero_grad()
        divisor = step_denominator(len(train), minibatch=size, mode=mode)
        report = trainer.forward_backward(train, constants, denominator=divisor)
        updates.append(_take_step(role, trainer, report, settings, batch, flat_share=flat_share, step=step))
        if updates[-1].skipped:
            raise_for_groups(trainer, train, constants, batch_size=len(groups), workspace=workspace)
        tokens += updates[-1].num_tokens
        progress(len(updates), len(batches), tokens)
    assert tokens == total, (tokens, total)
    if updates and all(row.skipped for row in updates):
        first = updates[0]
        raise EngineError(
            f"the {first.role} took none of {len(updates)} steps: the gradient of the first minibatch has the norm "
            f"{first.gradient_norm} and the loss {first.loss}, although its {first.num_groups} groups are finite",
            hint=HINT,
        )
    trainer.save(workspace)
    return updates


def _compute_logprobs(
    trainer: Trainer, groups: Sequence[Sequence[Rollout]], constants: Objective
) -> dict[str, Sequence[float]]:
    """Log-probabilities of the checkpoint that the trainer holds, by rollout id."""
    train = [train_group(rows, [0.0] * len(rows)) for rows in groups]
    temperature = constants.temperature
    computed = trainer.logprobs(train, temperature=temperature)
    # A group that is not finite may spoil others in the same pass: compute each of them again alone.
    return logprobs_by_rollout(
        groups,
        [
            values if is_finite(sum(map(sum, values))) else trainer.logprobs([group], temperature=temperature)[0]
            for group, values in zip(train, computed, strict=True)
        ],
    )


def _take_step(
    role: str,
    trainer: Trainer,
    report: StepReport,
    settings: UpdateSettings,
    groups: Sequence[Sequence[Rollout]],
    *,
    flat_share: float,
    step: int,
) -> Update:
    """Take an AdamW step on the accumulated gradient, unless loss or norm is not finite; returns the step's row."""
    # A gradient may be finite although its loss is not: the clamp of a ratio blocks a NaN in the backward pass.
    norm = trainer.optim_step(settings.learning_rate) if is_finite(report.loss) else math.nan
    trainer.zero_grad()
    # The trainer itself takes no step if the norm is not finite.
    skipped = not is_finite(norm)
    rows = [row for group in groups for row in group]
    return Update(
        role=role,
        step=step if skipped else step + 1,
        num_groups=len(groups),
        num_responses=len(rows),
        num_tokens=report.num_tokens,
        flat_share=flat_share,
        loss=report.loss,
        gradient_norm=norm,
        learning_rate=settings.learning_rate,
        cut=sum(row.finish_reason == "length" for row in rows),
        below_epsilon=trainer.below_epsilon(),
        skipped=skipped,
        **report.means,
    )
