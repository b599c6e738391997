"""Phase 5: update the solver by Dr.GRPO on the generated questions (Algorithm 2, phase 5; eq:unified_obj)."""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from infuser_core.algorithm.advantage import is_flat
from infuser_core.algorithm.score import mid_eos_shaped
from infuser_core.config.run import RunConfig
from infuser_core.cotrain.phases.parts.not_finite import NotFinite, retry_without_not_finite
from infuser_core.cotrain.phases.training import UpdateSettings, by_group, excluded_questions, update
from infuser_core.protocols import Progress, Trainer, no_progress
from infuser_core.schemas import Checkpoint, Question, Role, Rollout, TrainerLogprobs, Update, Verdict

VERSION = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Difficulty:
    """Accuracy of a question, and whether it is within the band that the update trains on."""

    question_id: str
    """Question answered."""
    accuracy: float
    """Share of the solver's answers that are correct."""
    inside: bool
    """Whether the accuracy is in the band, ends included; other questions are left out of the update."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SolverSettings:
    """Settings that the solver's update depends on."""

    step: UpdateSettings
    """Optimizer and objective."""
    band: tuple[float, float] | None
    """Lowest and highest accuracy of a question that is trained on."""
    ranks: bool
    """Whether the limits of the band are quantiles of the batch's accuracies."""
    mid_eos_penalty: float
    """Added (it is negative) to the reward of a response that ends by itself without an answer."""
    left_out: Sequence[str]
    """Questions that the configuration excludes from this iteration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SolverUpdate:
    """Result of the solver's update."""

    updates: list[Update]
    """One row per optimizer step; empty if no group had variance."""
    difficulties: list[Difficulty]
    """One row per question if there is a band of accuracies."""
    not_finite: list[NotFinite]
    """Questions that were left out because their loss or gradient is not finite."""


def settings_of(config: RunConfig, *, iteration: int) -> SolverSettings:
    """Settings of a run that this phase depends on."""
    cotrain = config.cotrain
    return SolverSettings(
        step=UpdateSettings.of(cotrain, cotrain.solver, iteration=iteration, max_tokens=cotrain.solver_tokens),
        band=cotrain.solver.band(),
        ranks=cotrain.solver.accuracy_quantiles is not None,
        mid_eos_penalty=cotrain.mid_eos_penalty,
        left_out=excluded_questions(config, iteration),
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
    """Take AdamW steps on eq:unified_obj over questions with varied rewards and, if there is a band, an accuracy in it.

    Questions are ordered so that a minibatch mixes documents. The trainer holds `before`; `anchor` is the base model
    for the KL term.
    """
    all_groups = {name: rows for name, rows in by_group(rollouts).items() if name not in settings.left_out}
    document_of = {question.question_id: question.document_id for question in questions}
    rated = rate_difficulty(all_groups, settings.band, ranks=settings.ranks) if settings.band else []
    outside = {row.question_id for row in rated if not row.inside}
    penalty, verdicts = settings.mid_eos_penalty, settings.step.objective.options.mid_eos_verdicts

    def attempt(excluded: Collection[str]) -> list[Update]:
        if excluded:
            solver.load(before)
        groups = {name: rows for name, rows in all_groups.items() if name not in excluded}
        # Shaped before flat groups are removed, as in the authors' code: a group of wrong answers may then vary.
        rewards = {
            name: [
                mid_eos_shaped(row.reward, row.verdict, row.finish_reason, penalty=penalty, verdicts=verdicts)
                for row in rows
            ]
            for name, rows in groups.items()
        }
        advantages = settings.step.advantages(list(rewards.values()))
        varied = [name for name, own in rewards.items() if not is_flat(own) and name not in outside]
        order = stratified_order([document_of[name] for name in varied])
        return update(
            Role.SOLVER,
            solver,
            [groups[varied[index]] for index in order],
            dict(zip(rewards, advantages, strict=True)),
            settings.step,
            flat_share=sum(map(is_flat, rewards.values())) / max(1, len(rewards)),
            workspace=workspace,
            before=before,
            anchor=anchor,
            old_logprobs={row.rollout_id: row.logprobs for row in old_logprobs},
            progress=progress,
        )

    updates, not_finite = retry_without_not_finite(attempt, solver, workspace=workspace)
    return SolverUpdate(updates=updates, difficulties=rated, not_finite=not_finite)


def stratified_order(document_ids: Sequence[str]) -> list[int]:
    """Order of the rows that spreads every document's questions evenly, so that one minibatch mixes documents.

    The j-th of a document's k questions gets the ideal position (j + 1/2) / k; ties go to the document seen first.
    """
    sizes = Counter(document_ids)
    first_seen = {document_id: place for place, document_id in enumerate(sizes)}
    counts: Counter[str] = Counter()
    positions: list[tuple[float, int, int]] = []
    for row, document_id in enumerate(document_ids):
        positions.append(((counts[document_id] + 0.5) / sizes[document_id], first_seen[document_id], row))
        counts[document_id] += 1
    return [row for _, _, row in sorted(positions)]


def rate_difficulty(
    groups: Mapping[str, Sequence[Rollout]], band: tuple[float, float], *, ranks: bool = False
) -> list[Difficulty]:
    """Accuracy of every question, and whether it is in the band of accuracies or, with `ranks`, of their quantiles."""
    accuracies = {
        name: sum(row.verdict == Verdict.CORRECT for row in rows) / len(rows) for name, rows in groups.items()
    }
    low, high = band
    if ranks and accuracies:
        # Rounded outwards: equal accuracies are all in or all out.
        ordered, last = sorted(accuracies.values()), len(accuracies) - 1
        low, high = ordered[math.floor(low * last)], ordered[math.ceil(high * last)]
    return [
        Difficulty(question_id=group_id, accuracy=accuracy, inside=low <= accuracy <= high)
        for group_id, accuracy in accuracies.items()
    ]
