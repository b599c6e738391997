"""Rollout rows to training groups: advantages attached, flat groups marked by advantage 0."""

from collections.abc import Mapping, Sequence
from itertools import groupby

from infuser_core.algorithm.preset import Preset, resolve
from infuser_core.config.run import CotrainSettings, LossSettings, RunConfig
from infuser_core.engines.protocols import Objective, TrainGroup, TrainRow
from infuser_core.schemas import Rollout


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
