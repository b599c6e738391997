"""Counts per question (arrays _Q): the unit of every interval, curve and paired comparison."""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from infuser_core.errors import UsageError
from infuser_core.schemas import QuestionScore


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Counts of one solver on a set of questions. Only `correct` counts as correct; everything else is wrong."""

    question_ids: tuple[str, ...]
    """Questions, in the order of the arrays."""
    samples_Q: np.ndarray
    """Responses per question, at least 1."""
    correct_Q: np.ndarray
    """Correct responses per question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two solvers on the questions that both answered."""

    question_ids: tuple[str, ...]
    """Common questions, in the first one's order."""
    first: Tally
    """The first solver on them."""
    second: Tally
    """The second solver on them."""
    left_out: int
    """Questions that only one of the two answered; they enter no paired number."""


def from_scores(rows: Sequence[QuestionScore]) -> Tally:
    """Counts that an evaluation saved. Questions without a response (left out by choice) are not in the denominator."""
    asked = [row for row in rows if row.num_samples]
    return from_counts(
        {row.question_id: row.num_correct for row in asked}, {row.question_id: row.num_samples for row in asked}
    )


def from_counts(correct: Mapping[str, int], samples: Mapping[str, int] | int) -> Tally:
    """A tally from counts by question id; one number of samples may stand for all questions.

    Raises UsageError when a question has no response, or more correct responses than responses.
    """
    ids = tuple(correct)
    drawn_Q = np.array([samples if isinstance(samples, int) else samples[name] for name in ids], dtype=np.int64)
    correct_Q = np.array([correct[name] for name in ids], dtype=np.int64)
    impossible = (drawn_Q < 1) | (correct_Q < 0) | (correct_Q > drawn_Q)
    if impossible.any():
        at = int(np.argmax(impossible))
        raise UsageError(
            f"question {ids[at]}: {correct_Q[at]} correct of {drawn_Q[at]} responses",
            hint="every question has at least one response, and every response one verdict",
        )
    return Tally(question_ids=ids, samples_Q=drawn_Q, correct_Q=correct_Q)


def shares(tally: Tally) -> np.ndarray:
    """Share of correct responses per question, (Q,)."""
    return np.asarray(tally.correct_Q / tally.samples_Q, dtype=np.float64)


def accuracy(tally: Tally) -> float:
    """Mean over questions of the mean over samples (strict: no answer and unverified are wrong); nan without any."""
    return float(shares(tally).mean()) if tally.question_ids else float("nan")


def take(tally: Tally, indices: Sequence[int] | np.ndarray) -> Tally:
    """The questions at these positions, in this order."""
    chosen = np.asarray(indices, dtype=np.int64)
    return Tally(
        question_ids=tuple(tally.question_ids[int(at)] for at in chosen),
        samples_Q=tally.samples_Q[chosen],
        correct_Q=tally.correct_Q[chosen],
    )


def members(tally: Tally, chosen: Container[str], *, inside: bool = True) -> Tally:
    """The questions that are (or with `inside=False` are not) in `chosen`."""
    return take(tally, [at for at, name in enumerate(tally.question_ids) if (name in chosen) is inside])


def pair(first: Tally, second: Tally) -> Pair:
    """Both solvers on their common questions. Raises UsageError when they share none."""
    place = {name: at for at, name in enumerate(second.question_ids)}
    common = [(at, place[name]) for at, name in enumerate(first.question_ids) if name in place]
    if not common:
        raise UsageError(
            f"{len(first.question_ids)} and {len(second.question_ids)} questions, none in common",
            hint="compare results on the same benchmark",
        )
    left = take(first, [at for at, _ in common])
    return Pair(
        question_ids=left.question_ids,
        first=left,
        second=take(second, [at for _, at in common]),
        left_out=len(first.question_ids) + len(second.question_ids) - 2 * len(common),
    )
