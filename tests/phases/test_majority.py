"""Pseudo-labels: agreement with the majority of the group is rewarded, whatever the generator's key says."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from solver_rows import answers, question

from infuser_core.cotrain.phases.rollout_questions import PseudoLabel, relabel
from infuser_core.schemas import Question, Verdict


def judged(asked: Question, texts: list[str]) -> tuple[list[float], PseudoLabel]:
    rollouts, (label,) = relabel([asked], answers(asked.question_id, texts), preset="paper")
    return [row.reward for row in rollouts], label


def boxed(*values: object) -> list[str]:
    return [f"so \\boxed{{{value}}}" for value in values]


def test_the_majority_is_rewarded_and_not_the_key():
    rewards, label = judged(question("q", answer="7"), boxed(5, 7, 5, 5))
    assert rewards == [1.0, 0.0, 1.0, 1.0]
    assert (label.label, label.votes, label.answered, label.key, label.agrees) == ("5", 3, 4, "7", False)


def test_the_first_of_equals_wins():
    rewards, label = judged(question("q", answer="9"), boxed(3, 9, 9, 3))
    assert (rewards, label.label, label.agrees) == ([1.0, 0.0, 0.0, 1.0], "3", False)


def test_answers_are_equal_by_the_verifier():
    rewards, label = judged(question("q", answer="07"), boxed("7.0", 5, "07", 7))
    assert (rewards, label.votes, label.agrees) == ([1.0, 0.0, 1.0, 1.0], 3, True)


def test_no_answer_never_wins():
    rewards, label = judged(question("q"), ["no idea", "none", "nothing", *boxed(4)])
    assert (rewards, label.label, label.answered) == ([0.0, 0.0, 0.0, 1.0], "4", 1)


def test_nobody_is_rewarded_where_nothing_can_be_read():
    rewards, label = judged(question("q"), ["no idea", *boxed("a cat", "a cat")])
    assert (rewards, label.label, label.votes) == ([0.0, 0.0, 0.0], "", 0)


def test_letters_beyond_the_choices_are_no_candidates():
    rewards, label = judged(question("q", answer="A", verifier="choice"), boxed("F", "F", "B", "(b)"))
    assert (rewards, label.label) == ([0.0, 0.0, 1.0, 1.0], "B")


def test_a_key_rewards_nobody_even_where_there_is_no_majority():
    rows = answers("q", ["nothing to read"], correct=[True])
    (row,), _ = relabel([question("q")], rows, preset="paper")
    assert (row.reward, row.verdict) == (0.0, Verdict.UNVERIFIED)


def test_answers_by_people_stand():
    rows = answers("q", boxed(5, 5), correct=[False, True])
    assert relabel([question("q", generated=False)], rows, preset="paper") == (rows, [])


@given(st.lists(st.sampled_from(["1", "2", "3", ""]), min_size=1, max_size=9))
def test_the_reward_is_the_share_of_the_largest_block(given_answers: list[str]):
    texts = [f"\\boxed{{{answer}}}" if answer else "none" for answer in given_answers]
    rewards, label = judged(question("q"), texts)
    counts = Counter(answer for answer in given_answers if answer)
    largest = max(counts.values(), default=0)
    assert sum(rewards) == label.votes == largest
    assert label.answered == counts.total()
    assert not largest or label.label == next(answer for answer in given_answers if counts[answer] == largest)
