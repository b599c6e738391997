"""Counts per question, the unit of every interval, curve and paired comparison; sums over them.

Legend of shape suffixes: _Q questions.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np

from infuser_core.errors import UsageError
from infuser_core.schemas import BenchmarkVerdict, QuestionScore, Verdict

_WORDS = {str(word): at for at, word in enumerate(Verdict)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """What one solver made of a set of questions. Only `correct` counts as correct; everything else is wrong."""

    question_ids: tuple[str, ...]
    """Questions, in the order of the arrays."""
    samples_Q: np.ndarray
    """Responses per question, at least 1."""
    correct_Q: np.ndarray
    """Correct responses per question."""
    no_answer_Q: np.ndarray
    """Responses without an answer, per question."""
    unverified_Q: np.ndarray
    """Responses that could not be verified, per question."""


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


def from_verdicts(rows: Sequence[BenchmarkVerdict]) -> Tally:
    """Counts of one benchmark under one preset, questions in order of first appearance.

    Raises UsageError when the rows mix benchmarks or presets, or hold one sample twice.
    """
    for field in ("benchmark", "preset"):
        _refuse_mixture(field, sorted(set(map(attrgetter(field), rows))))
    names = list(map(attrgetter("question_id"), rows))
    ids, codes = _coded(names)
    samples = np.fromiter(map(attrgetter("sample_index"), rows), dtype=np.int64, count=len(rows))
    _refuse_repeats(names, codes, samples)
    words = np.fromiter(map(_WORDS.__getitem__, map(attrgetter("verdict"), rows)), dtype=np.int64, count=len(rows))
    counts = np.bincount(codes * len(_WORDS) + words, minlength=len(ids) * len(_WORDS)).reshape(-1, len(_WORDS))
    return Tally(
        question_ids=ids,
        samples_Q=counts.sum(axis=1),
        correct_Q=counts[:, _WORDS[Verdict.CORRECT]],
        no_answer_Q=counts[:, _WORDS[Verdict.NO_ANSWER]],
        unverified_Q=counts[:, _WORDS[Verdict.UNVERIFIED]],
    )


def from_scores(rows: Sequence[QuestionScore]) -> Tally:
    """Counts that an evaluation saved. Questions without a response (left out by choice) are not in the denominator."""
    return from_counts(
        {row.question_id: row.num_correct for row in rows if row.num_samples},
        {row.question_id: row.num_samples for row in rows if row.num_samples},
        no_answer={row.question_id: row.num_no_answer for row in rows},
        unverified={row.question_id: row.num_unverified for row in rows},
    )


def from_counts(
    correct: Mapping[str, int],
    samples: Mapping[str, int] | int,
    *,
    no_answer: Mapping[str, int] | None = None,
    unverified: Mapping[str, int] | None = None,
) -> Tally:
    """A tally from counts by question id; one number of samples may stand for all questions.

    Raises UsageError when a question has no response, or more counted responses than responses.
    """
    ids = tuple(correct)
    drawn = np.array([samples if isinstance(samples, int) else samples[name] for name in ids], dtype=np.int64)
    right, silent, unclear = (
        np.array([given.get(name, 0) for name in ids], dtype=np.int64)
        for given in (correct, no_answer or {}, unverified or {})
    )
    impossible = (drawn < 1) | (np.minimum(np.minimum(right, silent), unclear) < 0) | (right + silent + unclear > drawn)
    if impossible.any():
        at = int(np.argmax(impossible))
        raise UsageError(
            f"question {ids[at]}: {right[at]} correct, {silent[at]} unanswered and {unclear[at]} unverified "
            f"of {drawn[at]} responses",
            hint="every response has exactly one verdict, and every question at least one response",
        )
    return Tally(question_ids=ids, samples_Q=drawn, correct_Q=right, no_answer_Q=silent, unverified_Q=unclear)


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
        no_answer_Q=tally.no_answer_Q[chosen],
        unverified_Q=tally.unverified_Q[chosen],
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


def _coded(names: Sequence[str]) -> tuple[tuple[str, ...], np.ndarray]:
    """Distinct names in order of first appearance, and each row's position among them."""
    place = {name: at for at, name in enumerate(dict.fromkeys(names))}
    return tuple(place), np.fromiter(map(place.__getitem__, names), dtype=np.int64, count=len(names))


def _refuse_mixture(field: str, found: Sequence[str]) -> None:
    if len(found) > 1:
        raise UsageError(
            f"verdicts of {len(found)} {field}s in one count: {', '.join(found[:3])}",
            hint=f"count each {field} by itself",
        )


def _refuse_repeats(names: Sequence[str], codes: np.ndarray, samples: np.ndarray) -> None:
    keys = codes * (int(samples.max(initial=0)) + 1) + samples
    order = np.argsort(keys, kind="stable")
    again = np.flatnonzero(np.diff(keys[order]) == 0)
    if again.size:
        at = int(order[again[0] + 1])
        raise UsageError(
            f"question {names[at]}: sample {samples[at]} was scored twice",
            hint="one verdict per response: count a single scoring of the responses",
        )


HARD, MEDIUM = 0.25, 0.625
"""Largest share of correct responses at which a question counts as hard, and as medium."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Responses of a tally, counted."""

    total: int
    """Responses."""
    valid: int
    """Responses that were scored: neither without an answer nor unverified."""
    failed: int
    """The other responses."""
    correct: int
    """Correct responses."""
    strict: float
    """correct / total; nan without responses."""
    lenient: float
    """correct / valid; nan when nothing was scored."""


def totals(tally: Tally) -> Totals:
    """The counts over all responses."""
    total, correct = int(tally.samples_Q.sum()), int(tally.correct_Q.sum())
    failed = int((tally.no_answer_Q + tally.unverified_Q).sum())
    valid = total - failed
    return Totals(
        total=total,
        valid=valid,
        failed=failed,
        correct=correct,
        strict=correct / total if total else float("nan"),
        lenient=correct / valid if valid else float("nan"),
    )


def correct_distribution(tally: Tally) -> dict[int, float]:
    """Share of questions with 0, 1, ... correct responses, up to the largest number of samples."""
    return _distribution(tally.correct_Q, int(tally.samples_Q.max(initial=0)))


def failed_distribution(tally: Tally) -> dict[int, float]:
    """Share of questions with 0, 1, ... unscored responses, up to the largest number of samples."""
    return _distribution(tally.no_answer_Q + tally.unverified_Q, int(tally.samples_Q.max(initial=0)))


def difficulty(correct: int, valid: int) -> str:
    """hard, medium or easy by the share of scored responses that are correct; unknown when none was scored."""
    if valid == 0:
        return "unknown"
    share = correct / valid
    return "hard" if share <= HARD else "medium" if share <= MEDIUM else "easy"


def _distribution(counts_Q: np.ndarray, most: int) -> dict[int, float]:
    if counts_Q.size == 0:
        return {}
    found = np.bincount(counts_Q, minlength=most + 1)
    return {number: float(share) for number, share in enumerate(found / counts_Q.size)}
