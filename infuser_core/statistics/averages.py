"""Exact averages: several seeds of one method, and numbers rounded for print."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from infuser_core.errors import UsageError

Number = int | float | Decimal | Fraction


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """One number over seeds."""

    mean: Fraction
    """Exact mean."""
    sd: float | None = None
    """Sample standard deviation (n - 1); None for a single seed. It is no confidence interval."""
    low: float | None = None
    """Lower end of the 95% t interval of the mean; None for a single seed."""
    high: float | None = None
    """Upper end."""
    seeds: int = 1
    """Seeds."""


def over_seeds(values: Sequence[Number]) -> Spread:
    """Mean, sample standard deviation and 95% t interval (n - 1 degrees of freedom: 4.303 s / sqrt(3) for three).

    Raises UsageError without values.
    """
    if not values:
        raise UsageError("no seeds to average", hint="name at least one finished run")
    mean, count = mean_of(values), len(values)
    if count == 1:
        return Spread(mean=mean)
    sd = math.sqrt(sum((exactly(value) - mean) ** 2 for value in values) / (count - 1))
    half = t_quantile(count - 1) * sd / math.sqrt(count)
    return Spread(mean=mean, sd=sd, low=float(mean) - half, high=float(mean) + half, seeds=count)


def t_quantile(freedom: int) -> float:
    """Two-sided critical value of Student's t at 5%."""
    # Imported here: printing saved results needs no scipy.
    from scipy.special import stdtrit

    return float(stdtrit(freedom, 0.975))
