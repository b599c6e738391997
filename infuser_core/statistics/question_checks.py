"""What is known of each generated question, and what an iteration's questions come to."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from infuser_core.exams.interval import wilson

KEYS = ("agrees", "disputes", "undecided")
"""What a majority of the strongest solver's answers says of a key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedQuestion:
    """A generated question with the outcome of every check."""

    iteration: int
    """Iteration that wrote it."""
    question_id: str
    """Question."""
    document_id: str
    """Document that it was written from; empty where there was none."""
    text: str
    """Question without its choices."""
    choices: list[str]
    """Choices in the order shown; empty when free-form."""
    answer: str
    """The generator's key."""
    copies: int
    """Other questions of the iteration with the same text and choices."""
    points_at: str
    """Words by which it points at a text that nobody sees, as the rules find them; empty for none."""
    self_contained: bool
    """Whether it stands alone."""
    decided_by: str
    """rules, or judge where a model gave a usable reply: who decided whether it stands alone."""
    missing: str
    """What the judge misses; empty where it misses nothing, or nobody was asked."""
    key: str
    """agrees, disputes or undecided: the strongest solver on the key; empty where nobody answered."""
    majority: str
    """What most of its answers say; empty where they do not agree."""
    oracle: str
    """sound, unsound or unknown: what the run's own labeller says of the key; empty without one."""
    agreement: list[float]
    """Share of answers that agree with the key, solver by solver; -1 where one did not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationQuality:
    """The questions of one iteration in numbers."""

    iteration: int
    """Iteration."""
    questions: int
    """Questions looked at."""
    distinct: float
    """Distinct questions over questions."""
    self_contained: float
    """Share that stands alone."""
    low: float
    """Lower end of its 95% interval (Wilson)."""
    high: float
    """Upper end."""
    pointing: int
    """Questions that the rules find pointing."""
    judged: int
    """Questions that a judge decided."""
    overruled: int
    """Of these, those where the rules would have decided otherwise."""
    keys: dict[str, int]
    """agrees, disputes, undecided to questions; empty where nobody answered."""
    oracle_checked: int
    """Keys that the labeller could tell about."""
    oracle_sound: float | None
    """Share of them that it calls right; None without any."""
    oracle_disputed: float | None
    """Share of the disputed keys among them that it calls wrong: what a majority is worth; None without any."""


def iteration_quality(rows: Sequence[CheckedQuestion]) -> IterationQuality:
    """The numbers of one iteration's questions, at least one."""
    known = [row for row in rows if row.oracle in ("sound", "unsound")]
    disputed = [row for row in known if row.key == "disputes"]
    judged = [row for row in rows if row.decided_by == "judge"]
    counts = Counter(row.key for row in rows)
    alone = sum(row.self_contained for row in rows) / len(rows)
    interval = wilson(alone, len(rows))
    return IterationQuality(
        iteration=rows[0].iteration,
        questions=len(rows),
        distinct=sum(1 / (1 + row.copies) for row in rows) / len(rows),
        self_contained=alone,
        low=interval.low,
        high=interval.high,
        pointing=sum(bool(row.points_at) for row in rows),
        judged=len(judged),
        overruled=sum(row.self_contained == bool(row.points_at) for row in judged),
        keys={name: counts[name] for name in KEYS} if any(row.key for row in rows) else {},
        oracle_checked=len(known),
        oracle_sound=_share([row.oracle == "sound" for row in known]),
        oracle_disputed=_share([row.oracle == "unsound" for row in disputed]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SameDocument:
    """Two questions that were written from one document at two iterations."""

    document_id: str
    """Document."""
    before: CheckedQuestion
    """The earlier question."""
    after: CheckedQuestion
    """The later one."""


def side_by_side(rows: Sequence[CheckedQuestion], *, count: int) -> list[SameDocument]:
    """Questions of the earliest and the latest iteration that read the same document.

    Of the documents those come first whose iterations are furthest apart; of a document's questions the first by id.
    """
    found: dict[str, dict[int, CheckedQuestion]] = {}
    for row in sorted(rows, key=lambda row: (row.iteration, row.question_id)):
        if row.document_id:
            found.setdefault(row.document_id, {}).setdefault(row.iteration, row)
    pairs = [
        SameDocument(document_id=name, before=per[min(per)], after=per[max(per)])
        for name, per in found.items()
        if len(per) > 1
    ]
    return sorted(pairs, key=lambda pair: (pair.before.iteration - pair.after.iteration, pair.document_id))[:count]


def _share(found: Sequence[bool]) -> float | None:
    return sum(found) / len(found) if found else None
