"""Rollout rows as training groups, and minibatch AdamW steps on eq:unified_obj: the part that the two updates share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from infuser_core.algorithm.advantage import advantages
from infuser_core.algorithm.preset import Preset, length_norm, resolve, step_denominator
from infuser_core.config.roles import RoleSettings
from infuser_core.config.run import CotrainSettings, LossSettings, OptimizerSettings, RunConfig
from infuser_core.engines.protocols import Objective, Progress, StepReport, Trainer, TrainGroup, TrainRow, no_progress
from infuser_core.schemas import Rollout, Update


def by_group(rollouts: Sequence[Rollout]) -> dict[str, list[Rollout]]:
    """Rollouts of each group, in their order. Rows of one group stand together in every artifact."""
    return {group_id: list(rows) for group_id, rows in groupby(rollouts, key=lambda rollout: rollout.group_id)}


def train_group(
    rollouts: Sequence[Rollout], advantages_G: Sequence[float], old_logprobs: Mapping[str, list[float]] | None = None
) -> TrainGroup:
    """One group with its advantages; `old_logprobs` by rollout id where the update has several steps.

    Rows without tokens (a prompt that did not fit) have nothing to train on and are left out.
    """
    rows = [
        TrainRow(
            token_ids=rollout.token_ids,
            advantage=advantage,
            sampler_logprobs=rollout.sampler_logprobs,
            old_logprobs=old_logprobs.get(rollout.rollout_id) if old_logprobs else None,
        )
        for rollout, advantage in zip(rollouts, advantages_G, strict=True)
        if rollout.token_ids
    ]
    return TrainGroup(
        group_id=rollouts[0].group_id,
        prompt_token_ids=rollouts[0].prompt_token_ids,
        rows=rows,
    )


def left_out(config: RunConfig, iteration: int) -> list[str]:
    """Excluded questions of one iteration: their identifiers begin with its number."""
    return sorted({name for name in config.cotrain.exclude_questions if name.startswith(f"{iteration}/")})


def options_of(cotrain: CotrainSettings) -> Preset:
    """The algorithm's named options: the preset's, with what the configuration sets itself."""
    changed = {} if cotrain.loss.dual_clip is None else {"dual_clip": cotrain.loss.dual_clip}
    return resolve(cotrain.preset, **changed)


def objective(loss: LossSettings, options: Preset, *, length_norm: float, temperature: float) -> Objective:
    """The constants of eq:unified_obj for one role."""
    return Objective(
        clip_low=loss.clip_low,
        clip_high=loss.clip_high,
        dual_clip=options.dual_clip,
        tis_cap=loss.tis_cap,
        tis_form=options.tis_form,
        length_norm=length_norm,
        temperature=temperature,
    )


def logprobs_of(
    groups: Sequence[Sequence[Rollout]], computed: Sequence[Sequence[list[float]]]
) -> dict[str, list[float]]:
    """The trainer's log-probabilities by rollout id: `computed` has one list per row with tokens, empty where none."""
    return {
        rollout.rollout_id: logprobs_T
        for rows, group in zip(groups, computed, strict=True)
        for rollout, logprobs_T in zip((row for row in rows if row.token_ids), group, strict=True)
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateSettings:
    """Settings that an update of a role depends on."""

    learning_rate: float
    """Step size, constant."""
    minibatch: int
    """M: groups per optimizer step."""
    advantage: str
    """Name of the advantage estimator."""
    loss: LossSettings
    """Constants of the objective."""
    options: Preset
    """Named options of the algorithm."""
    optimizer: OptimizerSettings
    """AdamW's constants."""
    max_tokens: int
    """Longest generation: C of the paper's form, tokens."""
    temperature: float
    """Sampling temperature of the rollouts."""

    @classmethod
    def of(cls, cotrain: CotrainSettings, role: RoleSettings, *, max_tokens: int) -> "UpdateSettings":
        """Those of one role."""
        return cls(
            learning_rate=role.learning_rate,
            minibatch=role.minibatch,
            advantage=role.advantage,
            loss=cotrain.loss,
            options=options_of(cotrain),
            optimizer=cotrain.optimizer,
            max_tokens=max_tokens,
            temperature=cotrain.sampling.temperature,
        )

    def objective(self, lengths: Sequence[int]) -> Objective:
        """The constants of eq:unified_obj for an update batch with these response lengths."""
        norm = length_norm(lengths, mode=self.options.length_norm, max_tokens=self.max_tokens)
        return objective(self.loss, self.options, length_norm=norm, temperature=self.temperature)

    def advantages(self, rewards: Sequence[Sequence[float]]) -> list[list[float]]:
        """The configured advantage of every row of every group."""
        return advantages(
            rewards,
            normaliser=self.options.normaliser(self.advantage),
            sigma_b=self.options.sigma_b,
            single_row=self.options.single_row,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedBackward:
    """Report of a backward pass that the solver's update shares; the gradient lies beside it."""

    num_groups: int
    """Groups in the step."""
    num_tokens: int
    """Response tokens."""
    loss: float
    """Negative objective."""
    clip_fraction: float
    """Share of response tokens where the clipped branch was active."""
    mean_ratio: float
    """Mean importance ratio."""
    mean_tis: float
    """Mean truncated importance weight."""


def minibatches(groups: Sequence[Sequence[Rollout]], size: int) -> list[list[Sequence[Rollout]]]:
    """Consecutive runs of `size` groups; the last may be smaller and is weighted by its real size."""
    return [list(groups[start : start + size]) for start in range(0, len(groups), size)]


def update(
    role: str,
    trainer: Trainer,
    groups: Sequence[Sequence[Rollout]],
    advantages: Mapping[str, Sequence[float]],
    settings: UpdateSettings,
    *,
    workspace: Path,
    first_step: int,
    old_logprobs: Mapping[str, list[float]] | None = None,
    progress: Progress = no_progress,
) -> list[Update]:
    """One pass over the groups in minibatches, then the checkpoint is written into `workspace`.

    With several steps the policy moves away from the rollouts' policy: the trainer's log-probabilities at the start
    are the old policy of the ratio. They are computed here where no earlier pass over the same checkpoint yielded
    them (`old_logprobs`, by rollout id). With one step old and current coincide and nothing is needed.
    """
    constants = settings.objective([len(rollout.token_ids) for rows in groups for rollout in rows])
    batches = minibatches(groups, settings.minibatch)
    old = None
    if len(batches) > 1:
        known = old_logprobs or {}
        lacking = [rows for rows in groups if any(row.token_ids and row.rollout_id not in known for row in rows)]
        old = {**known, **_old_logprobs(trainer, lacking, constants)} if lacking else known
    updates: list[Update] = []
    total = sum(len(rollout.token_ids) for rows in groups for rollout in rows)
    tokens = 0
    for batch in batches:
        step = first_step + len(updates) + 1
        updates.append(_step(role, trainer, batch, advantages, constants, settings, old, step=step))
        tokens += updates[-1].num_tokens
        progress(len(updates), len(batches), tokens)
    assert tokens == total, (tokens, total)
    trainer.save(workspace)
    return updates


def _old_logprobs(
    trainer: Trainer, groups: Sequence[Sequence[Rollout]], constants: Objective
) -> dict[str, list[float]]:
    train = [train_group(rows, [0.0] * len(rows)) for rows in groups]
    return logprobs_of(groups, trainer.logprobs(train, temperature=constants.temperature))


def _step(
    role: str,
    trainer: Trainer,
    batch: Sequence[Sequence[Rollout]],
    advantages: Mapping[str, Sequence[float]],
    constants: Objective,
    settings: UpdateSettings,
    old: Mapping[str, list[float]] | None,
    *,
    step: int,
) -> Update:
    train = [train_group(rows, advantages[rows[0].group_id], old) for rows in batch]
    trainer.zero_grad()
    divisor = step_denominator(len(batch), minibatch=settings.minibatch, mode=settings.options.partial_minibatch)
    report = trainer.forward_backward(train, constants, denominator=divisor)
    return take_step(role, trainer, report, settings, num_groups=len(batch), step=step)


def take_step(
    role: str,
    trainer: Trainer,
    report: StepReport | SharedBackward,
    settings: UpdateSettings,
    *,
    num_groups: int,
    step: int,
) -> Update:
    """AdamW on the accumulated gradient, and the row about it."""
    norm = trainer.optim_step(settings.learning_rate)
    trainer.zero_grad()
    # A norm that is not finite (inf or nan) made the trainer skip the step.
    finite = norm == norm and norm not in (float("inf"), float("-inf"))
    return Update(
        role=role,
        step=step,
        num_groups=num_groups,
        num_tokens=report.num_tokens,
        loss=report.loss,
        gradient_norm=norm,
        learning_rate=settings.learning_rate,
        clip_fraction=report.clip_fraction,
        mean_ratio=report.mean_ratio,
        mean_tis=report.mean_tis,
        skipped=not finite,
    )
