"""Phase 2b: the solver answers the generated questions (Algorithm 2, phase 2)."""

from collections.abc import Sequence
from dataclasses import dataclass

from infuser_core.config.run import RunConfig
from infuser_core.engines.protocols import Progress, Sampler, no_progress
from infuser_core.phases import rollout_dev
from infuser_core.phases.answering import AnswerSettings, answer_questions
from infuser_core.phases.drawing import Kept
from infuser_core.phases.majority import PseudoLabel, relabel
from infuser_core.schemas import Question, Rollout

VERSION = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledAnswerSettings:
    """How generated questions are put to the solver, and what its answers are compared with."""

    answers: AnswerSettings
    """The same as for the dev set, so that the two gradients are comparable."""
    labels: str
    """`reference` for the generator's answer, `majority` for that of most of the solver's own answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """Answers to an iteration's questions."""

    rollouts: list[Rollout]
    """n per question, in question order."""
    labels: list[PseudoLabel]
    """One row per question where a majority takes the place of the key."""


def settings_of(config: RunConfig) -> LabelledAnswerSettings:
    """The sub-configuration that the phase is a function of."""
    return LabelledAnswerSettings(answers=rollout_dev.settings_of(config), labels=config.cotrain.labels)


def rollout_questions(
    questions: Sequence[Question],
    solver: Sampler,
    settings: LabelledAnswerSettings,
    *,
    checkpoint_id: str,
    seed: int,
    iteration: int,
    kept: Kept | None = None,
    progress: Progress = no_progress,
) -> Answered:
    """n answers per question with their rewards r(a, a_phi; q)."""
    rollouts = answer_questions(
        questions,
        solver,
        settings.answers,
        checkpoint_id=checkpoint_id,
        seed=seed,
        scope=f"rollout_questions/{iteration}",
        kept=kept,
        progress=progress,
    )
    if settings.labels != "majority":
        return Answered(rollouts=rollouts, labels=[])
    labelled = relabel(questions, rollouts, preset=settings.answers.box)
    return Answered(rollouts=labelled.rollouts, labels=labelled.labels)
