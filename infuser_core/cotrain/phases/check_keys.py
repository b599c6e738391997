"""Estimate how many keys (reference answers) of generated questions are right, from a strong solver's answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Unpack

from infuser_core.config.run import RunConfig, SamplingSettings
from infuser_core.cotrain.phases import rollout_dev
from infuser_core.evaluation.answering import AnswerSettings, Draw, answer_questions
from infuser_core.evaluation.statistics.key_accuracy import key_accuracy, majority_votes
from infuser_core.protocols import Sampler
from infuser_core.schemas import KeyAccuracy, Question, Rollout

VERSION = 6
VOTER = "strong solver"
"""Name of the estimate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckSettings:
    """Settings for sampling a strong solver's answers to the generated questions."""

    answers: AnswerSettings
    """The solver's settings, except for one greedy answer."""
    solver: Mapping[str, str]
    """Identity of the model."""


def settings_of(config: RunConfig, *, solver: Mapping[str, str]) -> CheckSettings:
    """Settings of a run that this phase depends on."""
    greedy = SamplingSettings(temperature=0.0)
    return CheckSettings(answers=replace(rollout_dev.settings_of(config), samples=1, sampling=greedy), solver=solver)


def check_keys(
    questions: Sequence[Question], solver: Sampler, settings: CheckSettings, *, iteration: int, **draw: Unpack[Draw]
) -> tuple[list[Rollout], list[KeyAccuracy]]:
    """Sample an answer per generated question, judge it by the generator's key, and return the share of confirmed keys.

    Questions that came with the pool's rows are not asked. The share has one row, or none if no answer can be compared.
    """
    generated = [question for question in questions if question.rollout_id]
    rollouts = answer_questions(generated, solver, settings.answers, scope=f"check_keys/{iteration}", **draw)
    return rollouts, key_accuracy([], majority_votes(generated, rollouts), voters=VOTER)
