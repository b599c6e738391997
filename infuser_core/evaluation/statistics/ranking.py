"""Rank questions by influence score, with the accuracy and the file row of each."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from infuser_core.errors import UsageError
from infuser_core.evaluation.statistics.bootstrap import wilson
from infuser_core.schemas import MEANINGS, InfluenceScore, Question, ScoreStatus

SHOWN = 5
"""Questions that a summary names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredQuestion:
    """One row of the ranking: a question with its score and accuracy."""

    rank: int
    """1 for the highest score."""
    file: str
    """File of the question; empty for rows in memory."""
    row: int
    """Row in the file or in memory, from 1."""
    question_id: str
    score: float
    """Influence as the configuration measures it: by default the preconditioned cosine; 0 without a direction."""
    cosine: float
    """Cosine of AdamW's direction for the question and the dev gradient."""
    raw_cosine: float
    """Cosine of the plain gradient and the dev gradient."""
    accuracy: float
    """Share of the model's answers that are right."""
    accuracy_low: float
    """Lower end of Wilson's 95% interval of the accuracy."""
    accuracy_high: float
    """Upper end of that interval."""
    samples: int
    """Answers per question."""
    status: str
    """scored, or the reason for a score of 0 (see schemas.ScoreStatus)."""
    text: str
    choices: list[str]
    answer: str
    """Reference answer: the letter of the right choice, if there are choices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileQuestion:
    """A question and its row in a file or in memory."""

    question: Question
    """Its identifier is unique among all files."""
    file: str
    """Empty for rows in memory."""
    row: int


def shards(questions: Sequence[Question], size: int) -> Iterator[Sequence[Question]]:
    """Split questions into consecutive pieces of `size`."""
    return (questions[start : start + size] for start in range(0, len(questions), size))


def rank_questions(
    questions: Sequence[FileQuestion], scores: Sequence[InfluenceScore], *, samples: int
) -> list[ScoredQuestion]:
    """Rank all questions, the highest score first; equal scores keep their order."""
    pairs = sorted(zip(questions, scores, strict=True), key=lambda pair: -pair[1].score)
    rows = []
    for rank, (each, score) in enumerate(pairs, 1):
        low, high = wilson(score.solver_accuracy, samples)
        rows.append(
            ScoredQuestion(
                rank=rank,
                file=each.file,
                row=each.row,
                question_id=each.question.question_id.partition("/")[2],
                score=score.score,
                cosine=score.cosine,
                raw_cosine=score.raw_cosine,
                accuracy=score.solver_accuracy,
                accuracy_low=low,
                accuracy_high=high,
                samples=samples,
                status=score.status,
                text=each.question.text,
                choices=each.question.choices,
                answer=each.question.answer,
            )
        )
    return rows


def summary(rows: Sequence[ScoredQuestion]) -> dict[str, Any]:
    """Summarise a ranking as JSON values: counts, mean accuracy and the first rows."""
    return {
        "questions": len(rows),
        "statuses": dict(Counter(row.status for row in rows)),
        "accuracy": round(sum(row.accuracy for row in rows) / max(1, len(rows)), 4),
        "best": [asdict(row) for row in rows[:SHOWN]],
    }


def describe_unscored(statuses: Sequence[str]) -> str:
    """The most common reason if no question has a score; else empty."""
    if not statuses or ScoreStatus.SCORED in statuses:
        return ""
    status, count = Counter(statuses).most_common(1)[0]
    remedy = (
        "dev questions that the model sometimes answers" if status == ScoreStatus.NO_DEV_SIGNAL else "other questions"
    )
    return f"no score for {count} of {len(statuses)} questions: {MEANINGS[ScoreStatus(status)]}; choose {remedy}"


def parse_keep(keep: str) -> float:
    """Parse `top:N`: a share up to 1, or a number of questions; 0 for an empty text. Raises UsageError for others."""
    if not keep:
        return 0.0
    kind, _, number = keep.partition(":")
    try:
        value = float(number)
    except ValueError:
        value = 0.0
    if kind != "top" or not 0 < value <= 1e9:
        raise UsageError(f"--keep {keep}: unknown", hint="top:0.25 keeps a quarter, top:500 keeps 500")
    return value


def take_best(rows: Sequence[ScoredQuestion], share: float) -> list[ScoredQuestion]:
    """Take the best rows: a share of all rows, or if above 1 a number; questions without a score are never taken."""
    count = round(share * len(rows)) if share <= 1 else int(share)
    return [row for row in rows if row.status == ScoreStatus.SCORED][:count]
