"""Phase 1b: compute g_dev, the reference gradient of the dev questions (eq:hat_g_dev)."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from infuser_core.algorithm.advantage import centre, is_flat
from infuser_core.config.run import RunConfig
from infuser_core.cotrain.phases.parts.not_finite import (
    NotFinite,
    check_gradient,
    is_finite,
    raise_for_groups,
    retry_without_not_finite,
)
from infuser_core.cotrain.phases.training import ObjectiveSettings, by_group
from infuser_core.protocols import Progress, Trainer, no_progress
from infuser_core.schemas import Gradient, Rollout

VERSION = 2
FILE = "gradient.safetensors"


@dataclass(frozen=True, slots=True, kw_only=True)
class DevSettings:
    """Settings that the phase depends on."""

    objective: ObjectiveSettings
    mean: float = 0.0
    """Always 0, part of the recipe: gradients could once be averaged over iterations."""


def settings_of(config: RunConfig) -> DevSettings:
    """Settings of a run that this phase depends on."""
    return DevSettings(objective=objective_of(config))


def objective_of(config: RunConfig) -> ObjectiveSettings:
    """Settings of the solver's loss: the same for dev and generated questions, to make their gradients comparable."""
    return ObjectiveSettings.of(config.cotrain, max_tokens=config.cotrain.solver_tokens)


def dev_gradient(
    rollouts: Sequence[Rollout],
    solver: Trainer,
    settings: DevSettings,
    *,
    workspace: Path,
    progress: Progress = no_progress,
) -> tuple[Gradient, list[NotFinite]]:
    """Compute g_dev, the gradient of the dev questions' mean objective, into `workspace/gradient.safetensors`.

    Returns its norm and counts, and the questions that were left out because their loss or gradient is not finite.
    Raises EngineError if it is not finite and leaving out single questions does not help.
    """
    all_groups = by_group(rollouts)

    def attempt(excluded: Collection[str]) -> Gradient:
        groups = {group_id: rows for group_id, rows in all_groups.items() if group_id not in excluded}
        rewards = {group_id: [row.reward for row in rows] for group_id, rows in groups.items()}
        train = [settings.objective.train_group(rows, centre(rewards[group_id])) for group_id, rows in groups.items()]
        constants = settings.objective.constants(groups.values())
        solver.zero_grad()
        report = solver.forward_backward(train, constants, denominator=max(1, len(groups)), progress=progress)
        norm = solver.keep_gradient(workspace / FILE)
        solver.zero_grad()
        varied = [
            group
            for group in train
            if not is_flat(rewards[group.group_id]) and any(row.advantage for row in group.rows)
        ]
        if not is_finite(report.loss, norm):
            raise_for_groups(solver, varied, constants, batch_size=len(varied), workspace=workspace)
            check_gradient(workspace / FILE, norm, of="the dev objective")
        values = [value for group in rewards.values() for value in group]
        return Gradient(
            norm=norm,
            num_groups=len(groups),
            num_varied=len(varied),
            averaged=1,
            accuracy=sum(values) / max(1, len(values)),
        )

    return retry_without_not_finite(attempt, solver, workspace=workspace)
