"""Phase 5: Dr.GRPO on the solver, over the generated questions (Algorithm 2, phase 5)."""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from infuser_core.algorithm.advantage import is_flat
from infuser_core.algorithm.score import mid_eos_shaped
from infuser_core.config.run import RunConfig
from infuser_core.cotrain.phases.parts.not_finite import NotFinite, without_lost
from infuser_core.cotrain.phases.training import UpdateSettings, by_group, left_out, update
from infuser_core.protocols import Progress, Trainer, no_progress
from infuser_core.schemas import Checkpoint, Question, Role, Rollout, TrainerLogprobs, Update, Verdict

VERSION = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Difficulty:
    """Whether a question is trained on where only those of a band of accuracies are."""

    question_id: str
    """Question answered."""
    accuracy: float
    """Share of the solver's answers that are correct."""
    inside: bool
    """Whether it lies in the band, ends included: others are left out of the update."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SolverSettings:
    """Settings that the solver's update depends on."""

    step: UpdateSettings
    """Optimizer and objective."""
    band: tuple[float, float] | None
    """Accuracies outside of which a question is not trained on."""
    ranks: bool
    """Whether the band is one of quantiles of the batch's accuracies."""
    mid_eos_penalty: float
    """Taken from the reward of an answer that goes on behind an end mark."""
    left_out: Sequence[str]
    """Questions that the configuration excludes from this iteration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SolverUpdate:
    """Result of the solver's update."""

    updates: list[Update]
    """One row per optimizer step; empty where no group had variance."""
    difficulties: list[Difficulty]
    """One row per question where there is a band of accuracies."""
    lost: list[NotFinite]
    """Questions that left the batch."""


def settings_of(config: RunConfig, *, iteration: int) -> SolverSettings:
    """The sub-configuration that the phase is a function of."""
    cotrain = config.cotrain
    return SolverSettings(
        step=UpdateSettings.of(cotrain, cotrain.solver, iteration=iteration, max_tokens=cotrain.solver_tokens),
        band=cotrain.solver.band(),
        ranks=cotrain.solver.accuracy_quantiles is not None,
        mid_eos_penalty=cotrain.mid_eos_penalty,
        left_out=left_out(config, iteration),
    )


def update_solver(
    questions: Sequence[Question],
    rollouts: Sequence[Rollout],
    solver: Trainer,
    settings: SolverSettings,
    *,
    workspace: Path,
    before: Checkpoint,
    anchor: Checkpoint | None = None,
    old_logprobs: Sequence[TrainerLogprobs] = (),
    progress: Progress = no_progress,
) -> SolverUpdate:
    """Groups with zero variance, or outside the band of accuracies, are removed; the others are spread so that a
    minibatch mixes documents. The trainer holds `before`."""
    groups = {name: rows for name, rows in by_group(rollouts).items() if name not in settings.left_out}
    documents = {question.question_id: question.document_id for question in questions}
    rated = difficulties(groups, settings.band, ranks=settings.ranks) if settings.band else []
    outside = {row.question_id for row in rated if not row.inside}

    def attempt(lost: Collection[str]) -> list[Update]:
        if lost:
            solver.load(before)
        # Shaped before flat groups are removed, as in the authors' code: a group of wrong answers may then vary.
        rewards = {group_id: _shaped(rows, settings) for group_id, rows in groups.items() if group_id not in lost}
        values = settings.step.advantages(list(rewards.values()))
        varied = [group_id for group_id, own in rewards.items() if not is_flat(own) and group_id not in outside]
        order = stratified_order([documents[group_id] for group_id in varied])
        return update(
            Role.SOLVER,
            solver,
            [groups[varied[index]] for index in order],
            dict(zip(rewards, values, strict=True)),
            settings.step,
            flat_share=sum(map(is_flat, rewards.values())) / max(1, len(rewards)),
            workspace=workspace,
            before=before,
            anchor=anchor,
            old_logprobs={row.rollout_id: row.logprobs for row in old_logprobs},
            progress=progress,
        )

    updates, lost = without_lost(attempt, solver, workspace=workspace)
    return SolverUpdate(updates=updates, difficulties=rated, lost=lost)


def stratified_order(document_ids: Sequence[str]) -> list[int]:
    """Row order in which every document's questions are spread evenly, so that one minibatch mixes documents.

    The j-th of a document's k questions gets the ideal position (j + 1/2) / k; ties go to the document seen first.
    """
    sizes = Counter(document_ids)
    first_seen = {document_id: place for place, document_id in enumerate(sizes)}
    seen: Counter[str] = Counter()
    positions: list[tuple[float, int, int]] = []
    for row, document_id in enumerate(document_ids):
        positions.append(((seen[document_id] + 0.5) / sizes[document_id], first_seen[document_id], row))
        seen[document_id] += 1
    return [row for _, _, row in sorted(positions)]


def _shaped(rows: Sequence[Rollout], settings: SolverSettings) -> list[float]:
    penalty, verdicts = settings.mid_eos_penalty, settings.step.objective.options.mid_eos_verdicts
    return [
        mid_eos_shaped(row.reward, row.verdict, row.finish_reason, penalty=penalty, verdicts=verdicts) for row in rows
    ]


def difficulties(
    groups: Mapping[str, Sequence[Rollout]], band: tuple[float, float], *, ranks: bool = False
) -> list[Difficulty]:
    """Every question's accuracy, and whether it lies in the band, of accuracies or of their quantiles."""
    accuracies = {
        name: sum(row.verdict == Verdict.CORRECT for row in rows) / len(rows) for name, rows in groups.items()
    }
    low, high = _quantiles(sorted(accuracies.values()), band) if ranks and accuracies else band
    return [
        Difficulty(question_id=group_id, accuracy=accuracy, inside=low <= accuracy <= high)
        for group_id, accuracy in accuracies.items()
    ]


def _quantiles(accuracies: Sequence[float], band: tuple[float, float]) -> tuple[float, float]:
    """The accuracies at these shares of the way from the lowest to the highest; equal ones stay together."""
    last = len(accuracies) - 1
    return accuracies[math.floor(band[0] * last)], accuracies[math.ceil(band[1] * last)]
