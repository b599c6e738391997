"""A strong solver answers the generated questions, so that their keys can be compared with what it says; no update."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Unpack

from infuser_core.config.run import RunConfig, SamplingSettings
from infuser_core.cotrain.phases import rollout_dev
from infuser_core.evaluation.answering import AnswerSettings, Draw, answer_questions
from infuser_core.evaluation.statistics.key_accuracy import key_accuracy, majority_votes
from infuser_core.protocols import Sampler
from infuser_core.schemas import KeyAccuracy, Question, Rollout

VERSION = 5
VOTER = "strong solver"
"""Name of the estimate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckSettings:
    """Settings for putting generated questions to a strong solver."""

    answers: AnswerSettings
    """The solver's, but for one greedy answer."""
    solver: Mapping[str, str]
    """Identity of the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """The strong solver's answers and what they say of the keys."""

    rollouts: list[Rollout]
    """One per generated question, with its verdict by the generator's key."""
    keys: list[KeyAccuracy]
    """One row, none where no answer can be compared."""


def settings_of(config: RunConfig, *, solver: Mapping[str, str]) -> CheckSettings:
    """The sub-configuration that the phase is a function of."""
    greedy = SamplingSettings(temperature=0.0)
    return CheckSettings(answers=replace(rollout_dev.settings_of(config), samples=1, sampling=greedy), solver=solver)


def check_keys(
    questions: Sequence[Question], solver: Sampler, settings: CheckSettings, *, iteration: int, **how: Unpack[Draw]
) -> Checked:
    """One answer per question that a generator wrote, and the share of keys that the answers agree with."""
    written = [question for question in questions if question.rollout_id]
    rollouts = answer_questions(written, solver, settings.answers, scope=f"check_keys/{iteration}", **how)
    return Checked(rollouts=rollouts, keys=key_accuracy([], majority_votes(written, rollouts), voters=VOTER))
