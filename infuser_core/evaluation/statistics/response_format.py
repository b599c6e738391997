"""Form of responses during training: boxes, endings, stray template marks, scripts, lengths, and their changes."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from statistics import median
from typing import Any

import numpy as np

from infuser_core.evaluation.statistics.bootstrap import paired_difference
from infuser_core.verifiers.parts.extract import boxes

MARKS = r"<\|\w+\|>|\[/?INST\]|</?s>|<(start|end)_of_turn>"
"""Marks of chat templates, written out in the text of a response."""
ROLES = r"(?m)^\s*(System|User|Assistant|Human)\s*:"
"""A line that begins another turn."""
THOUGHTS = r"</?think(ing)?>"
"""Tags around thoughts."""
FOREIGN = r"[^\P{L}\p{Latin}\p{Greek}\p{Common}]"
"""Letters of other scripts than Latin, Greek and those of formulas (RE2)."""
FOREIGN_SHARE = 0.02
"""Share of a response's characters that such letters may be: a name or a quotation is not a change of language."""

MEASURES: Mapping[str, str] = {
    "one_box": "one boxed answer",
    "box_last": "ends in its box",
    "ended": "ends by itself",
    "no_marks": "no chat marks",
    "no_roles": "no further turns",
    "no_thoughts": "no think tags",
    "own_script": "own script",
}
"""Labels of the measured properties, each a share of responses."""

_INSIDE = re.compile(r"\w")
_BOX = "\\boxed"


ResponseForm = Mapping[str, Any]
"""Form of a response: `question_id`, its length in `tokens`, and for every property whether the response has it."""


def box_form(tail: str) -> tuple[bool, bool]:
    """Whether a response has exactly one box, and no word after its last; `tail` begins at its first box."""
    contents = boxes(tail)
    if not contents:
        return False, False
    start = tail.rfind(_BOX)
    while not (last := boxes(tail[start:])):
        # This box never closes.
        start = tail.rfind(_BOX, 0, start)
    rest = tail[start:]
    after = rest[rest.index(last[-1], rest.index("{")) + len(last[-1]) :]
    return len(contents) == 1, not _INSIDE.search(after)


def checkpoint_form(iteration: int, rows: Sequence[ResponseForm]) -> dict[str, Any]:
    """Summarise a checkpoint's responses, at least one: their number, median length and `shares` of properties."""
    return {
        "iteration": iteration,
        "responses": len(rows),
        "median_tokens": float(median(row["tokens"] for row in rows)),
        "shares": {name: _share(rows, name) for name in MEASURES},
    }


def paired_changes(before: Sequence[ResponseForm], after: Sequence[ResponseForm]) -> list[dict[str, Any]]:
    """Every property `before` and `after`, with the difference paired by question; empty without common questions."""
    first, second = _by_question(before), _by_question(after)
    common = sorted(first.keys() & second.keys())
    if not common:
        return []
    rows = []
    for name in MEASURES:
        old_Q, new_Q = (np.array([_share(side[question], name) for question in common]) for side in (first, second))
        left_out = len(first) + len(second) - 2 * len(common)
        difference = paired_difference(old_Q, new_Q, left_out=left_out)
        ends = {"before": float(old_Q.mean()), "after": float(new_Q.mean())}
        rows.append({"measure": name, **ends, "difference": asdict(difference)})
    return rows


def _by_question(rows: Sequence[ResponseForm]) -> dict[str, list[ResponseForm]]:
    by_question: dict[str, list[ResponseForm]] = {}
    for row in rows:
        by_question.setdefault(row["question_id"], []).append(row)
    return by_question


def _share(rows: Sequence[ResponseForm], name: str) -> float:
    return sum(row[name] for row in rows) / len(rows)
