"""Rewards of questions, and what repeated questions cost."""

import math
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from infuser_core.cotrain.reward import Reward, find_reward
from infuser_core.evaluation.statistics.repetition import cluster_sizes, similarities
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
    return reward.of([row, row], [question(), question("What else?")], [question("Which one is it?")])[0]


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


def test_random_rewards_know_nothing_of_the_solver_and_spread_evenly() -> None:
    texts, reward = [str(place) for place in range(300)], find_reward("random")
    row, other = score(0.25), score(1.0, influence=9.0)
    values = reward.of([row] * 300, [question(text) for text in texts])
    assert values == reward.of([other] * 300, [question(text) for text in texts])
    assert 0 <= min(values) < 0.1 and 0.9 < max(values) < 1 and 0.4 < sum(values) / 300 < 0.6


def test_similar_questions_earn_more_and_uncertain_ones_most() -> None:
    texts = ["How fast is the cart?", "How fast is the train?", "Who wrote the law?"]
    rows, dev = [score(0.5), score(0.25), score(0.5)], [question("How fast is a train?")]
    similar = find_reward("bm25").of(rows, [question(text) for text in texts], dev)
    assert similar[1] > similar[0] > similar[2] == 0
    both = find_reward("bm25_uncertainty").of(rows, [question(text) for text in texts], dev)
    assert both == [similar[0], similar[1] / 2, 0]


def test_the_expected_rewards_exist() -> None:
    assert set(EXPECTED) <= set(REWARDS.names())


TEXTS = st.lists(
    st.lists(st.sampled_from("abcd"), min_size=0, max_size=7).map(" ".join), min_size=0, max_size=12
)  # fmt: skip


def rewards(accuracies: Sequence[float], texts: Sequence[str]) -> list[float]:
    scores = [
        InfluenceScore(
            question_id=str(place), status=ScoreStatus.NOT_PROBED, score=0.0, cosine=0.0, dot=0.0, raw_cosine=0.0,
            direction_norm=0.0, gradient_norm=0.0, reference_norm=0.0, solver_accuracy=accuracy,
        )
        for place, accuracy in enumerate(accuracies)
    ]  # fmt: skip
    questions = [
        Question(
            question_id=str(place), text=text, choices=[], answer="1", verifier="exact", domain="", subdomain="",
            document_id="d", rollout_id=str(place), reasoning="",
        )
        for place, text in enumerate(texts)
    ]  # fmt: skip
    return find_reward("r_zero").of(scores, questions)


def test_a_repeated_question_pays_for_its_share_of_the_batch():
    texts = ["what is the mass of the sun"] * 2 + ["name a green stone", "how far do swallows fly"]
    assert rewards([0.5, 0.5, 0.5, 0.25], texts) == [0.5, 0.5, 0.75, 0.25]


def test_the_penalty_never_makes_a_reward_negative():
    assert rewards([0.5, 0.4, 0.0], ["the same words"] * 3) == [0.0, 0.0, 0.0]


def test_an_iteration_without_questions_has_no_rewards():
    assert rewards([], []) == []


def test_similarity_is_the_mean_of_bleu_both_ways():
    # Precisions 3/4, 2/3, 1/2, and none of one 4-gram, which counts as 1/10; equal lengths, so both ways agree.
    (_, (value,)) = similarities(["a b c d", "A b c e"])
    assert value == pytest.approx((3 / 4 * 2 / 3 * 1 / 2 * 0.1) ** 0.25)
    # Two words, one shared, against one word: brevity exp(1 - 2) one way, no bigram the other way.
    (_, (short,)) = similarities(["a b", "a"])
    assert short == pytest.approx((2.718281828459045**-1 * 1.0 + (1 / 2 * 0.1 / 1) ** 0.5) / 2)


@given(TEXTS)
def test_equal_texts_are_at_1_and_strangers_at_0(texts: list[str]):
    for row, one in zip(similarities(texts), texts, strict=True):
        for value, other in zip(row, texts, strict=False):
            assert 0.0 <= value <= 1.0 + 1e-12
            assert (value == 1.0) or one != other
            assert (value > 0.0) or not {*one.split()} & {*other.split()}


def closest_pairs(texts: Sequence[str], distance: float) -> list[int]:
    """The textbook procedure: look at all pairs of clusters, join the closest, begin again."""
    halves = similarities(texts)
    gap = {(i, j): 1.0 - halves[i][j] for i in range(len(texts)) for j in range(i)}
    clusters = [[place] for place in range(len(texts))]
    while len(clusters) > 1:
        means = {
            (a, b): sum(gap[max(i, j), min(i, j)] for i in clusters[a] for j in clusters[b])
            / (len(clusters[a]) * len(clusters[b]))
            for a in range(len(clusters))
            for b in range(a)
        }
        a, b = min(means, key=lambda pair: means[pair])
        if means[a, b] >= distance:
            break
        clusters[b] += clusters.pop(a)
    sizes = {place: len(cluster) for cluster in clusters for place in cluster}
    return [sizes[place] for place in range(len(texts))]


@given(st.randoms(use_true_random=False), st.sampled_from([0.5, 0.65, 0.8]))
def test_clusters_are_those_of_the_closest_pairs(rng: Random, distance: float):
    # Of different lengths, so that hardly two distances are equal and the clusters are unique.
    texts = [" ".join(rng.choice("abc") for _ in range(length)) for length in rng.sample(range(4, 25), k=7)]
    halves = [round(value, 12) for row in similarities(texts) for value in row]
    assume(len({*halves}) == len(halves))
    assert cluster_sizes(texts, distance=distance) == closest_pairs(texts, distance)
