"""Correct responses and samples per question (arrays _Q), from which intervals, curves and comparisons are computed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from infuser_core.errors import UsageError
from infuser_core.schemas import QuestionScore


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Counts of one solver's responses per question. Only the verdict `correct` counts as correct, others as wrong."""

    question_ids: tuple[str, ...]
    """Identifiers of the questions, in the order of the arrays."""
    samples_Q: np.ndarray
    """Responses per question, at least 1."""
    correct_Q: np.ndarray


def from_scores(rows: Sequence[QuestionScore]) -> Tally:
    """Make a tally of the rows that an evaluation saved, except questions without a response (left out by choice)."""
    answered = [row for row in rows if row.num_samples]
    return from_counts(
        {row.question_id: row.num_correct for row in answered}, {row.question_id: row.num_samples for row in answered}
    )


def from_counts(correct: Mapping[str, int], samples: Mapping[str, int] | int) -> Tally:
    """Make a tally of counts by question id; `samples` may be one number for all questions.

    Raises UsageError when a question has no response, or more correct responses than responses.
    """
    ids = tuple(correct)
    samples_Q = np.array([samples if isinstance(samples, int) else samples[name] for name in ids], dtype=np.int64)
    correct_Q = np.array([correct[name] for name in ids], dtype=np.int64)
    impossible = (samples_Q < 1) | (correct_Q < 0) | (correct_Q > samples_Q)
    if impossible.any():
        at = int(np.argmax(impossible))
        raise UsageError(
            f"question {ids[at]}: {correct_Q[at]} correct of {samples_Q[at]} responses",
            hint="every question has at least one response, and every response one verdict",
        )
    return Tally(question_ids=ids, samples_Q=samples_Q, correct_Q=correct_Q)


def shares(tally: Tally) -> np.ndarray:
    """Share of correct responses per question, (Q,)."""
    return np.asarray(tally.correct_Q / tally.samples_Q, dtype=np.float64)


def accuracy(tally: Tally) -> float:
    """Mean over questions of the mean over samples (strict: no answer and unverified are wrong); nan without any."""
    return float(shares(tally).mean()) if tally.question_ids else float("nan")


def common_questions(tallies: Sequence[Tally]) -> tuple[list[str], int]:
    """Questions that all tallies have, in the order of the first, and the number of other questions."""
    sets = [set(tally.question_ids) for tally in tallies]
    common = set.intersection(*sets)
    return [name for name in tallies[0].question_ids if name in common], len(set.union(*sets)) - len(common)


def mean_shares(tallies: Sequence[Tally], ids: Sequence[str]) -> np.ndarray:
    """Share of correct responses to each of these questions, (Q,), averaged over the tallies."""
    columns = []
    for tally in tallies:
        by_id = dict(zip(tally.question_ids, shares(tally), strict=True))
        columns.append([by_id[name] for name in ids])
    return np.asarray(np.mean(np.asarray(columns, dtype=np.float64), axis=0))
