"""Counts per question: what an evaluation saved, common questions of two solvers, and what is refused by name."""

from dataclasses import replace

import numpy as np
import pytest

from infuser_core.errors import UsageError
from infuser_core.evaluation.statistics.tally import (
    accuracy,
    common_questions,
    from_counts,
    from_scores,
    mean_shares,
    shares,
)
from infuser_core.schemas import QuestionScore


def test_accuracy_is_the_mean_over_questions_of_the_mean_over_samples():
    tally = from_counts({"a": 4, "b": 1, "c": 0}, {"a": 4, "b": 2, "c": 8})
    assert list(shares(tally)) == [1.0, 0.5, 0.0] and accuracy(tally) == 0.5
    assert np.isnan(accuracy(from_counts({}, 1)))


def test_impossible_counts_are_refused():
    with pytest.raises(UsageError, match="question b: 3 correct of 2"):
        from_counts({"a": 1, "b": 3}, 2)
    with pytest.raises(UsageError, match="of 0 responses"):
        from_counts({"a": 0}, 0)


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


def test_common_questions_stand_in_the_first_order():
    both = [from_counts({"a": 1, "b": 0, "c": 1}, 1), from_counts({"c": 0, "d": 1, "a": 1}, 1)]
    ids, left_out = common_questions(both)
    assert ids == ["a", "c"] and left_out == 2
    assert list(mean_shares(both, ids)) == [1, 0.5] and list(mean_shares(both[1:], ids)) == [1, 0]
