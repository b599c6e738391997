"""R-Zero's challenger: uncertainty, less the share of the batch that a question's cluster makes up."""

from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from infuser_core.cotrain.reward import find_reward
from infuser_core.evaluation.statistics.repetition import cluster_sizes, similarities
from infuser_core.schemas import InfluenceScore, Question, ScoreStatus

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
