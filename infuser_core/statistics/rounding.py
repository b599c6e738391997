"""Rounding for print: half up on exact numbers, and the paper's own way."""

from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Literal

Number = int | float | Decimal | Fraction
Rounding = Literal["exact", "paper"]
"""exact: averages of unrounded numbers; paper: averages of cells as they are printed."""


def half_up(value: Number, digits: int = 2) -> Decimal:
    """The number with `digits` decimals, ties away from zero. A float means its shortest decimal form."""
    exact = exactly(value)
    scaled = abs(exact) * 10**digits
    whole = (2 * scaled.numerator + scaled.denominator) // (2 * scaled.denominator)
    return Decimal(-whole if exact < 0 else whole).scaleb(-digits)


def printed(value: Number, digits: int = 2) -> str:
    """The number as it stands in a table."""
    return f"{half_up(value, digits):.{digits}f}"


def exactly(value: Number) -> Fraction:
    """A number without rounding error; a float is read as it prints."""
    return Fraction(repr(value)) if isinstance(value, float) else Fraction(value)


def mean_of(values: Sequence[Number]) -> Fraction:
    """Exact mean."""
    return sum((exactly(value) for value in values), Fraction(0)) / len(values)


def relative(value: Number, base: Number) -> Fraction:
    """Relative improvement in percent: 100 (value / base - 1). A base of 0 has none: ZeroDivisionError."""
    return 100 * (exactly(value) / exactly(base) - 1)
