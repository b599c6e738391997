"""Reward of DARC's questioner: closeness of the solver's accuracy to the accuracy that the question aims at.

It is 1 - |p - aim|, or -0.1 if no answer is right: such a question may have no answer at all. `aim` comes from
`cotrain.aims`, and p is measured against the label that a teacher with the document gives.
"""

from collections.abc import Sequence

from infuser_core.errors import ConfigError
from infuser_core.schemas import InfluenceScore, Question
from infuser_core.verifiers.parts.grading import grading_of

NEEDS_INFLUENCE = False
UNSOLVED = -0.1
"""Reward of a question that the solver never gets right."""


def rewards(scores: Sequence[InfluenceScore], questions: Sequence[Question]) -> list[float]:
    """One reward per question of the iteration. Raises ConfigError for a question without an accuracy to aim at."""
    values = []
    for score, question in zip(scores, questions, strict=True):
        aim = grading_of(question).aim
        if not aim:
            raise ConfigError("reward aim: no accuracy to aim at", hint="set cotrain.aims, such as [0.8, 0.5, 0.2]")
        closeness = 1.0 - abs(score.solver_accuracy - float(aim))
        values.append(closeness if score.solver_accuracy > 0.0 else UNSOLVED)
    return values
