"""A printed number beside the same number recomputed: exact, within rounding, or inconsistent.

Printed inputs are rounded, so a recomputed number has a range: its value, give or take what the rounding of the inputs
can do. A number that is not reproduced to the digit but whose range meets the printed one's is within rounding.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction

from infuser_core.report.paper_numbers import Cell
from infuser_core.statistics.averages import format_decimal, half_up, mean_of


class Status(StrEnum):
    """How a printed number compares with the recomputed one."""

    EXACT = "exact"
    ROUNDING = "within rounding"
    INCONSISTENT = "inconsistent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One printed number, recomputed."""

    table: str
    """Table of the paper."""
    cell: str
    """Anchor, column and row."""
    kind: str
    """average, relative, mean, sd, delta, gap, sum, share, ratio, count, cross-table, derived or feasibility."""
    printed: str
    """As printed."""
    recomputed: str
    """Recomputed, to the printed decimals."""
    status: str
    """exact, within rounding or inconsistent."""
    note: str
    """From what it was recomputed, and what the number says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recomputed:
    """A number made of printed ones."""

    value: Fraction
    """Value from the numbers as printed."""
    slack: Fraction
    """How far the rounding of the inputs may have moved it, either way."""


def compare(
    cell: Cell,
    made: Recomputed,
    *,
    kind: str,
    note: str = "",
    text: str = "",
    deviation: bool = False,
    name: str = "",
) -> Check:
    """The check of a cell (or, with `deviation`, of the standard deviation beside it)."""
    shown = cell.std if deviation else cell.text
    digits = len(shown.partition(".")[2])
    status = judge(Decimal(shown), digits, made)
    return Check(
        table=cell.table,
        cell=(name or name_of(cell)) + (" / SD" if deviation else ""),
        kind=kind,
        printed=shown,
        recomputed=text or format_decimal(made.value, digits),
        status=status,
        note=note,
    )


def name_of(cell: Cell) -> str:
    """Table, row and column of the paper."""
    return " / ".join(part for part in (cell.anchor, cell.column, cell.row) if part)


def slack_of(cell: Cell) -> Fraction:
    """Half a unit of the last digit: how far the number may be from what was rounded."""
    return Fraction(1, 2 * 10**cell.digits)


def judge(shown: Decimal, digits: int, made: Recomputed) -> Status:
    """The status of a printed number with that many decimals."""
    if half_up(made.value, digits) == shown:
        return Status.EXACT
    own = Fraction(1, 2 * 10**digits)
    return Status.ROUNDING if abs(Fraction(shown) - made.value) <= made.slack + own else Status.INCONSISTENT


def same(cell: Cell, *, deviation: bool = False) -> Recomputed:
    """The number that another cell prints."""
    if not deviation:
        return Recomputed(value=Fraction(cell.value), slack=slack_of(cell))
    assert cell.deviation is not None, cell
    return Recomputed(value=Fraction(cell.deviation), slack=Fraction(1, 2 * 10 ** len(cell.std.partition(".")[2])))


def combine(cells: Sequence[Cell], weights: Sequence[int] | Sequence[Fraction]) -> Recomputed:
    """A weighted sum."""
    pairs = list(zip(cells, [Fraction(weight) for weight in weights], strict=True))
    return Recomputed(
        value=sum((Fraction(cell.value) * weight for cell, weight in pairs), Fraction(0)),
        slack=sum((slack_of(cell) * abs(weight) for cell, weight in pairs), Fraction(0)),
    )


def mean(cells: Sequence[Cell], weights: Sequence[int] | None = None) -> Recomputed:
    """A mean, by weights when given."""
    given = list(weights or [1] * len(cells))
    return combine(cells, [Fraction(weight, sum(given)) for weight in given])


def minus(first: Cell, second: Cell) -> Recomputed:
    """A difference."""
    return combine([first, second], [1, -1])


def quotient(over: Recomputed, under: Recomputed, *, scale: int = 1, shift: int = 0) -> Recomputed:
    """scale (over / under + shift) for positive numbers; the slack is the larger of the two one-sided ones."""
    value = scale * (over.value / under.value + shift)
    most = scale * ((over.value + over.slack) / (under.value - under.slack) + shift)
    least = scale * ((over.value - over.slack) / (under.value + under.slack) + shift)
    return Recomputed(value=value, slack=max(most - value, value - least))


def sample_sd(values: Sequence[Recomputed], *, population: bool = False) -> Recomputed:
    """Sample (n - 1) standard deviation; moving each value by its slack moves it by at most |slacks| / sqrt(n - 1)."""
    centre = mean_of([value.value for value in values])
    freedom = len(values) - (0 if population else 1)
    squares = sum((value.value - centre) ** 2 for value in values)
    moved = sum(value.slack**2 for value in values)
    return Recomputed(value=Fraction(math.sqrt(squares / freedom)), slack=Fraction(math.sqrt(moved / freedom)))
