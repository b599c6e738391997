"""Every generator reward of the folder, and the way to one's own."""

import math

import pytest

from infuser_core.cotrain.reward import Reward, find_reward
from infuser_core.plugins import REWARDS
from infuser_core.schemas import InfluenceScore, Question, ScoreStatus


def score(accuracy: float, *, influence: float = 0.25) -> InfluenceScore:
    return InfluenceScore(
        question_id="q", status=ScoreStatus.SCORED, score=influence, cosine=influence, dot=1.0, raw_cosine=0.5,
        direction_norm=1.0, gradient_norm=1.0, reference_norm=1.0, solver_accuracy=accuracy,
    )  # fmt: skip


def question(text: str = "Which is it?") -> Question:
    return Question(
        question_id="q", text=text, choices=["a", "b"], answer="A", verifier="choice", domain="", subdomain="",
        document_id="d", rollout_id="r", reasoning="", grading='{"aim": "0.8"}',
    )  # fmt: skip


def of(reward: Reward, row: InfluenceScore) -> float:
    """Reward of a question beside one that has nothing in common with it."""
    return reward.of([row, row], [question(), question("What else?")])[0]


EXPECTED = {  # rewards at accuracy 0, 1/4, 1/2, 1
    "influence": [0.25, 0.25, 0.25, 0.25],
    "uncertainty": [0.0, 0.5, 1.0, 0.0],
    "learnability": [0.0, 0.75, 0.5, 0.0],
    "variance": [0.0, 0.1875, 0.25, 0.0],
    "constant": [1.0, 1.0, 1.0, 1.0],
    "spice": [math.exp(-3.125), math.exp(-((3 / 16 - 0.25) ** 2) / 0.02), 1.0, math.exp(-3.125)],
    "r_zero": [0.0, 0.0, 0.5, 0.0],
    "aim": [-0.1, 1 - (0.8 - 0.25), 0.7, 0.8],
}


@pytest.mark.parametrize("name", REWARDS.names())
def test_every_reward_of_the_folder(name: str) -> None:
    reward = find_reward(name)
    values = [of(reward, score(accuracy)) for accuracy in (0.0, 0.25, 0.5, 1.0)]
    assert all(math.isfinite(value) for value in values)
    assert values == EXPECTED.get(name, values)
    moved = of(reward, score(0.5, influence=-3.0)) != of(reward, score(0.5))
    assert moved <= reward.needs_influence, "a reward that reads the influence must say NEEDS_INFLUENCE = True"


def test_the_expected_rewards_exist() -> None:
    assert set(EXPECTED) <= set(REWARDS.names())
