"""Counts per question come from verdicts, and what cannot be counted is refused by name."""

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infuser_core.errors import UsageError
from infuser_core.schemas import BenchmarkVerdict, QuestionScore
from infuser_core.statistics.tally import (
    accuracy,
    correct_distribution,
    difficulty,
    failed_distribution,
    from_counts,
    from_scores,
    from_verdicts,
    members,
    pair,
    shares,
    totals,
)

WORDS = ["correct", "wrong", "no_answer", "unverified"]


def verdict(question: str, sample: int, word: str, **changed: str) -> BenchmarkVerdict:
    row = BenchmarkVerdict(
        benchmark="exam",
        question_id=question,
        sample_index=sample,
        preset="paper",
        verdict=word,
        extracted="",
        reason="",
        decided_by="verifier",
    )
    return replace(row, **changed)


def rows_of(table: dict[str, list[str]]) -> list[BenchmarkVerdict]:
    return [verdict(name, at, word) for name, words in table.items() for at, word in enumerate(words)]


answers = st.dictionaries(
    st.text("abcxyz", min_size=1, max_size=3), st.lists(st.sampled_from(WORDS), min_size=1, max_size=6), min_size=1
)


@given(answers, st.randoms())
def test_counts_do_not_depend_on_the_order_of_rows(table: dict[str, list[str]], order: random.Random):
    rows = rows_of(table)
    order.shuffle(rows)
    tally = from_verdicts(rows)
    for at, name in enumerate(tally.question_ids):
        assert tally.samples_Q[at] == len(table[name])
        assert tally.correct_Q[at] == table[name].count("correct")
        assert tally.no_answer_Q[at] == table[name].count("no_answer")
        assert tally.unverified_Q[at] == table[name].count("unverified")
    assert set(tally.question_ids) == set(table)
    expected = sum(words.count("correct") / len(words) for words in table.values()) / len(table)
    assert accuracy(tally) == pytest.approx(expected, abs=1e-12)


def test_ten_questions_of_four_samples():
    table = {f"right{n}": ["correct"] * 4 for n in range(3)}
    table |= {f"half{n}": ["correct", "correct", "wrong", "wrong"] for n in range(3)}
    table |= {f"wrong{n}": ["wrong"] * 4 for n in range(2)}
    table |= {f"silent{n}": ["correct", "no_answer", "wrong", "unverified"] for n in range(2)}
    tally = from_verdicts(rows_of(table))
    found = totals(tally)
    assert (found.total, found.valid, found.failed, found.correct) == (40, 36, 4, 20)
    assert found.strict == accuracy(tally) == 0.5
    assert found.lenient == 20 / 36
    assert correct_distribution(tally) == {0: 0.2, 1: 0.2, 2: 0.3, 3: 0.0, 4: 0.3}
    assert failed_distribution(tally) == {0: 0.8, 1: 0.0, 2: 0.2, 3: 0.0, 4: 0.0}


def test_difficulty_ignores_responses_that_were_not_scored():
    assert [difficulty(5, 8), difficulty(1, 4), difficulty(3, 4), difficulty(0, 0)] == [
        "medium",
        "hard",
        "easy",
        "unknown",
    ]


def test_one_response_scored_twice_is_refused():
    rows = [verdict("a", 0, "wrong"), verdict("b", 0, "wrong"), verdict("a", 0, "correct")]
    with pytest.raises(UsageError, match="question a: sample 0 was scored twice"):
        from_verdicts(rows)


@pytest.mark.parametrize("field", ["benchmark", "preset"])
def test_verdicts_of_two_kinds_are_refused(field: str):
    rows = [verdict("a", 0, "wrong"), verdict("a", 1, "wrong", **{field: "other"})]
    with pytest.raises(UsageError, match=f"2 {field}s in one count"):
        from_verdicts(rows)


def test_impossible_counts_are_refused():
    with pytest.raises(UsageError, match="question b: 3 correct"):
        from_counts({"a": 1, "b": 3}, 2)
    with pytest.raises(UsageError, match="of 0 responses"):
        from_counts({"a": 0}, 0)


def test_no_rows_are_no_questions():
    tally = from_verdicts([])
    assert tally.question_ids == () and np.isnan(accuracy(tally)) and np.isnan(totals(tally).strict)


def test_questions_that_were_left_out_are_not_in_the_denominator():
    row = QuestionScore(
        benchmark="exam",
        question_id="a",
        domain="",
        num_samples=4,
        num_correct=1,
        num_no_answer=1,
        num_unverified=0,
        num_cut=0,
        too_long=False,
        mean_response_tokens=3.0,
    )
    dropped = replace(row, question_id="b", num_samples=0, num_correct=0, num_no_answer=0, too_long=True)
    asked = replace(row, question_id="c", num_correct=0, num_no_answer=4, too_long=True)
    tally = from_scores([row, dropped, asked])
    assert tally.question_ids == ("a", "c") and accuracy(tally) == 0.125


def test_pairs_hold_common_questions_in_the_first_order():
    both = pair(from_counts({"a": 1, "b": 0, "c": 1}, 1), from_counts({"c": 0, "d": 1, "a": 1}, 1))
    assert both.question_ids == ("a", "c") and both.left_out == 2
    assert list(shares(both.first)) == [1, 1] and list(shares(both.second)) == [1, 0]
    with pytest.raises(UsageError, match="none in common"):
        pair(from_counts({"a": 1}, 1), from_counts({"b": 1}, 1))


def test_members_and_the_rest_make_the_whole():
    tally = from_counts({"a": 1, "b": 0, "c": 1}, 1)
    inside, outside = members(tally, {"b", "z"}), members(tally, {"b", "z"}, inside=False)
    assert inside.question_ids == ("b",) and outside.question_ids == ("a", "c")
