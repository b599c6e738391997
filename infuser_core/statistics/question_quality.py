"""Quality of generated questions: solver gaps, key checks, copies, self-containedness, per iteration."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from infuser_core.errors import UsageError
from infuser_core.schemas import BenchmarkVerdict, Verdict
from infuser_core.statistics.bootstrap import DRAWS, Difference, difference, wilson
from infuser_core.statistics.tally import Tally, accuracy

_TEXT = "text|passage|excerpt|document|chapter|article|paragraph|reading|textbook|lecture|lesson"
_SHOWN = "section|figure|diagram|graph|table|image|example|exercise|discussion|book|source|material|notes"
_WHICH = r"(?:the|this|that|these)\s+(?:\w+\s+)?"
_SAID = "mentioned|described|discussed|shown|stated|defined|given|noted|introduced|presented|illustrated|explained"
_RULES = tuple(
    re.compile(rule, re.IGNORECASE)
    for rule in (
        # "according to the passage", "as described in this section"
        rf"\b(?:according to|based on|(?:{_SAID})\s+(?:in|by|on))\s+{_WHICH}(?:{_TEXT}|{_SHOWN})s?\b",
        rf"\b(?:in|from|of|by|throughout)\s+{_WHICH}(?:{_TEXT})s?\b",
        # "the passage above", "the preceding figure"
        rf"\b(?:above|previous|preceding|aforementioned|provided)\s+(?:{_TEXT}|{_SHOWN})s?\b",
        rf"\b(?:{_TEXT}|{_SHOWN})s?\s+(?:above|below)\b",
        # "as mentioned earlier"; "described above" may mean the question's own first sentence
        rf"\b(?:{_SAID})\s+(?:earlier|previously)\b",
        # "Figure 3.2", "Theorem 4", "Eq. (7)"
        r"\b(?:figure|fig\.|table|equation|eq\.|theorem|lemma|chapter|section|example|exercise)\s*\(?\d+(?:\.\d+)*\b",
        # "what does the author conclude"
        r"\bthe\s+authors?(?:'s?)?\s+(?:\w+s|\w+ed|main|argument|view|conclusion|claim|state|argue|conclude|suggest)\b",
    )
)


def points_at(question: str) -> str:
    """The words by which a question points at something that is not there; empty when no rule finds any."""
    for rule in _RULES:
        found = rule.search(question)
        if found:
            return " ".join(found.group().split())
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SolverGap:
    """One solver beside the base on the same generated questions, both against the generator's own key."""

    solver: str
    """Solver."""
    base: str
    """Solver that it is compared with."""
    accuracy: float
    """Agreement with the generator's key over all questions that the solver answered."""
    gap: Difference
    """accuracy(solver) - accuracy(base) on common questions; the strong-against-weak gap for a strong solver."""


def strong_weak_gaps(solvers: Mapping[str, Tally], base: str, *, draws: int = DRAWS, seed: int = 0) -> list[SolverGap]:
    """The gap of every other solver over `base`, paired by question, in the order given.

    Raises UsageError when `base` is none of the solvers, or a solver shares no question with it.
    """
    if base not in solvers:
        raise UsageError(f"no answers of {base}", hint=f"solvers: {', '.join(solvers) or 'none'}")
    return [
        SolverGap(
            solver=name,
            base=base,
            accuracy=accuracy(tally),
            gap=difference(solvers[base], tally, draws=draws, seed=seed),
        )
        for name, tally in solvers.items()
        if name != base
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyCheck:
    """Majority of one solver's answers about a question's key."""

    finding: Literal["agrees", "disputes", "undecided"]
    """Most answers are the key; most are one other answer; neither."""
    answer: str
    """The answer of the majority; empty when undecided."""


def check_key(verdicts: Sequence[BenchmarkVerdict]) -> KeyCheck:
    """The key of one question against a solver's samples: more than half of them have to say the same."""
    right = [row for row in verdicts if row.verdict == Verdict.CORRECT]
    wrong = Counter(row.extracted for row in verdicts if row.verdict == Verdict.WRONG and row.extracted)
    if 2 * len(right) > len(verdicts):
        return KeyCheck(finding="agrees", answer=right[0].extracted)
    for answer, count in wrong.most_common(1):
        if 2 * count > len(verdicts):
            return KeyCheck(finding="disputes", answer=answer)
    return KeyCheck(finding="undecided", answer="")


def copies(questions: Mapping[str, str]) -> dict[str, int]:
    """Question id to how many other questions have the same text, case and spacing aside."""
    plain = {name: " ".join(text.casefold().split()) for name, text in questions.items()}
    counts = Counter(plain.values())
    return {name: counts[text] - 1 for name, text in plain.items()}


KEYS = ("agrees", "disputes", "undecided")
"""Findings of a majority of the strongest solver's answers on a key."""


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
    """Context that the judge misses; empty where it misses nothing, or nobody was asked."""
    key: str
    """agrees, disputes or undecided: the strongest solver on the key; empty where nobody answered."""
    majority: str
    """Answer of most of its replies; empty where they do not agree."""
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
