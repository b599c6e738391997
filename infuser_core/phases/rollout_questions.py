"""Phase 2b: the solver answers the generated questions (Algorithm 2, phase 2)."""

from collections.abc import Sequence

from infuser_core.config.run import RunConfig
from infuser_core.engines.protocols import Progress, Sampler, no_progress
from infuser_core.phases import rollout_dev
from infuser_core.phases.answering import AnswerSettings, answer_questions
from infuser_core.phases.drawing import Kept
from infuser_core.schemas import Question, Rollout

VERSION = 2


def settings_of(config: RunConfig) -> AnswerSettings:
    """The sub-configuration: the same as for the dev set, so that the two gradients are comparable."""
    return rollout_dev.settings_of(config)


def rollout_questions(
    questions: Sequence[Question],
    solver: Sampler,
    settings: AnswerSettings,
    *,
    checkpoint_id: str,
    seed: int,
    iteration: int,
    kept: Kept | None = None,
    progress: Progress = no_progress,
) -> list[Rollout]:
    """n answers per question with their rewards r(a, a_phi; q)."""
    return answer_questions(
        questions,
        solver,
        settings,
        checkpoint_id=checkpoint_id,
        seed=seed,
        scope=f"rollout_questions/{iteration}",
        kept=kept,
        progress=progress,
    )
