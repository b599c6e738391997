"""Phase 1b: the dev reference direction g_dev (eq:hat_g_dev)."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from infuser_core.algorithm.advantage import centre, is_flat
from infuser_core.config.run import RunConfig
from infuser_core.cotrain.phases.parts.not_finite import NotFinite, check_kept, is_finite, lose, without_lost
from infuser_core.cotrain.phases.training import ObjectiveSettings, by_group
from infuser_core.protocols import Progress, Trainer, no_progress
from infuser_core.schemas import Gradient, Rollout

VERSION = 2
FILE = "gradient.safetensors"


@dataclass(frozen=True, slots=True, kw_only=True)
class DevGradient:
    """Result of the phase; the tensors lie in the workspace."""

    facts: Gradient
    """The direction and the questions that it comes from."""
    lost: list[NotFinite]
    """Dev questions that left the batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DevSettings:
    """Settings that the phase depends on."""

    objective: ObjectiveSettings
    """The loss of an answer to a dev question."""
    mean: float = 0.0
    """Always 0: a part of the recipe since gradients could be averaged over iterations."""


def settings_of(config: RunConfig) -> DevSettings:
    """The sub-configuration that the phase is a function of."""
    return DevSettings(objective=objective_of(config))


def objective_of(config: RunConfig) -> ObjectiveSettings:
    """The solver's loss, by which dev questions and generated ones are compared."""
    return ObjectiveSettings.of(config.cotrain, max_tokens=config.cotrain.solver_tokens)


def dev_gradient(
    rollouts: Sequence[Rollout],
    solver: Trainer,
    settings: DevSettings,
    *,
    workspace: Path,
    progress: Progress = no_progress,
) -> DevGradient:
    """Write the dev objective's gradient to `workspace/gradient.safetensors`.

    Raises EngineError where it is not finite, and that is not the doing of some questions among others.
    """
    every = by_group(rollouts)

    def attempt(lost: Collection[str]) -> Gradient:
        groups = {name: rows for name, rows in every.items() if name not in lost}
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
            lose(solver, varied, constants, of=len(varied), workspace=workspace)
            check_kept(workspace / FILE, norm, of="the dev objective")
        values = [value for group in rewards.values() for value in group]
        return Gradient(
            norm=norm,
            num_groups=len(groups),
            num_varied=len(varied),
            averaged=1,
            accuracy=sum(values) / max(1, len(values)),
        )

    facts, lost = without_lost(attempt, solver, workspace=workspace)
    return DevGradient(facts=facts, lost=lost)
