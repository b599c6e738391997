"""Quality of generated questions per iteration: gaps between solvers, right keys, copies, self-containedness."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from infuser_core.evaluation.statistics.bootstrap import wilson
from infuser_core.schemas import BenchmarkVerdict, Verdict

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


def find_pointer(question: str) -> str:
    """The phrase that refers to missing context, such as a figure or a passage; empty if there is none."""
    for rule in _RULES:
        match = rule.search(question)
        if match:
            return " ".join(match.group().split())
    return ""


def check_key(verdicts: Sequence[BenchmarkVerdict]) -> tuple[str, str]:
    """Check one question's key: one of KEYS, and the answer that more than half of a solver's samples give, if any."""
    right = [row for row in verdicts if row.verdict == Verdict.CORRECT]
    wrong = Counter(row.extracted for row in verdicts if row.verdict == Verdict.WRONG and row.extracted)
    if 2 * len(right) > len(verdicts):
        return "agrees", right[0].extracted
    for answer, count in wrong.most_common(1):
        if 2 * count > len(verdicts):
            return "disputes", answer
    return "undecided", ""


def count_copies(questions: Mapping[str, str]) -> dict[str, int]:
    """Number of other questions with the same text, by question id; case and spacing are ignored."""
    plain = {name: " ".join(text.casefold().split()) for name, text in questions.items()}
    counts = Counter(plain.values())
    return {name: counts[text] - 1 for name, text in plain.items()}


KEYS = ("agrees", "disputes", "undecided")
"""Relations of a key to the majority of the strongest solver's answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedQuestion:
    """A generated question with the outcome of every check."""

    iteration: int
    question_id: str
    document_id: str
    """Document that it was written from; empty without one."""
    text: str
    """Question without its choices."""
    choices: list[str]
    """Choices in the order shown; empty when free-form."""
    answer: str
    """The generator's key."""
    copies: int
    """Other questions of the iteration with the same text and choices."""
    points_at: str
    """Words by which it refers to a text that is not shown, as the rules find them; empty for none."""
    self_contained: bool
    """Whether it can be understood without its document."""
    decided_by: str
    """Source of `self_contained`: judge if a model gave a usable reply, else rules."""
    missing: str
    """Context that the judge misses; empty if it misses nothing, or there is no judge."""
    key: str
    """agrees, disputes or undecided: the strongest solver on the key; empty without its answers."""
    majority: str
    """Answer of most of its replies; empty if they do not agree."""
    oracle: str
    """sound, unsound or unknown: the key by the run's own labeller; empty without one."""
    agreement: list[float]
    """Share of answers that agree with the key, solver by solver; -1 for a solver that did not answer."""


def iteration_quality(rows: Sequence[CheckedQuestion]) -> dict[str, Any]:
    """The numbers of one iteration's questions, at least one, as JSON values.

    `distinct` and `self_contained` are shares, the latter with Wilson's 95% interval; `overruled` counts the judged
    questions that the rules would have decided otherwise; `oracle_sound` is the share of right keys among those that
    the labeller decided, `oracle_disputed` that of wrong ones among the disputed; None without any.
    """
    labelled = [row for row in rows if row.oracle in ("sound", "unsound")]
    disputed = [row for row in labelled if row.key == "disputes"]
    judged = [row for row in rows if row.decided_by == "judge"]
    counts = Counter(row.key for row in rows)
    alone = sum(row.self_contained for row in rows) / len(rows)
    low, high = wilson(alone, len(rows))
    return {
        "iteration": rows[0].iteration,
        "questions": len(rows),
        "distinct": sum(1 / (1 + row.copies) for row in rows) / len(rows),
        "self_contained": alone,
        "low": low,
        "high": high,
        "pointing": sum(bool(row.points_at) for row in rows),
        "judged": len(judged),
        "overruled": sum(row.self_contained == bool(row.points_at) for row in judged),
        "keys": {name: counts[name] for name in KEYS} if any(row.key for row in rows) else {},
        "oracle_checked": len(labelled),
        "oracle_sound": _share([row.oracle == "sound" for row in labelled]),
        "oracle_disputed": _share([row.oracle == "unsound" for row in disputed]),
    }


def side_by_side(rows: Sequence[CheckedQuestion], *, count: int) -> list[dict[str, Any]]:
    """At most `count` pairs of questions on one document: of its first iteration (`before`) and its last (`after`).

    Documents whose iterations are furthest apart come first; of a document's questions the first by id is shown.
    """
    by_document: dict[str, dict[int, CheckedQuestion]] = {}
    for row in sorted(rows, key=lambda row: (row.iteration, row.question_id)):
        if row.document_id:
            by_document.setdefault(row.document_id, {}).setdefault(row.iteration, row)
    several = sorted((min(per) - max(per), name) for name, per in by_document.items() if len(per) > 1)
    return [
        {
            "document_id": name,
            "before": asdict(by_document[name][min(by_document[name])]),
            "after": asdict(by_document[name][max(by_document[name])]),
        }
        for _, name in several[:count]
    ]


def _share(flags: Sequence[bool]) -> float | None:
    return sum(flags) / len(flags) if flags else None
