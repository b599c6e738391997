"""How much of each checkpoint stays: all of it, its weights, or the facts about it.

Training goes on from whole checkpoints alone: AdamW's moments enter the influence score. Sampling needs the weights.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import IntEnum


class Extent(IntEnum):
    """What stays of a checkpoint; the larger, the more."""

    FACTS = 0
    WEIGHTS = 1
    WHOLE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What a person wants to keep."""

    keep_full: int
    """Newest checkpoints of a run that stay whole, at least 1."""
    every: int
    """Every so many iterations the weights stay; 0 for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """What retention must know of a run."""

    iterations: Collection[int]
    """Iterations behind each of its checkpoints, the anchor's 0 included."""
    passed: int
    """The run needs nothing older to go on from here: for a finished run its last iteration."""
    selected: int | None
    """The selected checkpoint; None while any may still be chosen."""
    pinned: Collection[int]
    """What a person pinned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What stays of one checkpoint, and why."""

    extent: Extent
    """How much."""
    why: str
    """The rule, for people."""


def verdicts(course: Course, rule: Rule) -> dict[int, Verdict]:
    """A verdict for each checkpoint of a run by the number of iterations behind it."""
    behind = sorted(number for number in course.iterations if number <= course.passed)
    newest = set(behind[-rule.keep_full :]) | {number for number in course.iterations if number > course.passed}
    return {number: _verdict(number, course, rule, newest) for number in sorted(course.iterations)}


def _verdict(number: int, course: Course, rule: Rule, newest: Collection[int]) -> Verdict:
    if number == 0:
        return Verdict(extent=Extent.WHOLE, why="the anchor")
    if number in course.pinned:
        return Verdict(extent=Extent.WHOLE, why="pinned")
    if number == course.selected:
        return Verdict(extent=Extent.WHOLE, why="selected")
    if number in newest:
        return Verdict(extent=Extent.WHOLE, why=f"among the last {rule.keep_full}")
    if rule.every and number % rule.every == 0:
        return Verdict(extent=Extent.WEIGHTS, why=f"weights of every {_ordinal(rule.every)}")
    if course.selected is None:
        return Verdict(extent=Extent.WEIGHTS, why="weights until one is selected")
    return Verdict(extent=Extent.FACTS, why=f"not among the last {rule.keep_full}, nor every {_ordinal(rule.every)}")


def _ordinal(number: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th") if number % 100 not in (11, 12, 13) else "th"
    return f"{number}{ending}"


def strongest(found: Iterable[Verdict]) -> Verdict:
    """Of several runs that hold a checkpoint, the one that wants the most of it decides."""
    return max(found, key=lambda verdict: verdict.extent)
