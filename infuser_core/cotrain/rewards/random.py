"""Control reward: a random number for every question, so that the generator's update has a size and no aim."""

from collections.abc import Sequence

from infuser_core.schemas import InfluenceScore, Question
from infuser_core.seeding import seed_of

NEEDS_INFLUENCE = False


def rewards(scores: Sequence[InfluenceScore], questions: Sequence[Question]) -> list[float]:
    """A number in [0, 1) per question, by its id and text."""
    return [seed_of(0, "random reward", question.question_id, question.text) / 2**63 for question in questions]
