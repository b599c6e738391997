"""Exact averages: several seeds of one method, categories over seeds, and numbers rounded for print."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Literal

from infuser_core.errors import UsageError

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """One number over seeds."""

    mean: Fraction
    """Exact mean."""
    sd: float | None
    """Sample standard deviation (n - 1); None for a single seed. It is no confidence interval."""
    low: float | None
    """Lower end of the 95% t interval of the mean; None for a single seed."""
    high: float | None
    """Upper end."""
    seeds: int
    """Seeds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CategoryAverage:
    """A category's unweighted mean over its benchmarks, and its spread over seeds."""

    category: str
    """Category, or the name given to the overall mean."""
    benchmarks: tuple[str, ...]
    """Its rows."""
    spread: Spread | None
    """Mean of the rows; its deviation is that of the per-seed averages. None when a row is missing."""
    missing: tuple[str, ...]
    """Rows without a number: no average is made of the rest."""


def over_seeds(values: Sequence[Number]) -> Spread:
    """Mean, sample standard deviation and 95% t interval (n - 1 degrees of freedom: 4.303 s / sqrt(3) for three).

    Raises UsageError without values.
    """
    if not values:
        raise UsageError("no seeds to average", hint="name at least one finished run")
    mean, count = mean_of(values), len(values)
    if count == 1:
        return Spread(mean=mean, sd=None, low=None, high=None, seeds=1)
    sd = math.sqrt(sum((exactly(value) - mean) ** 2 for value in values) / (count - 1))
    half = t_quantile(count - 1) * sd / math.sqrt(count)
    return Spread(mean=mean, sd=sd, low=float(mean) - half, high=float(mean) + half, seeds=count)


def t_quantile(freedom: int) -> float:
    """Two-sided critical value of Student's t at 5%."""
    # Imported here: printing saved results needs no scipy.
    from scipy.special import stdtrit

    return float(stdtrit(freedom, 0.975))


def category_averages(
    scores: Mapping[str, Sequence[Number]],
    categories: Mapping[str, Sequence[str]],
    *,
    overall: str = "",
    rounding: Rounding = "exact",
    digits: int = 2,
) -> list[CategoryAverage]:
    """Averages of the categories' benchmarks over seeds, with the mean of all rows last when `overall` names it.

    `scores` holds one number per seed for each benchmark, in the same order of seeds. With `rounding="paper"` the
    averages are made of numbers rounded to `digits`. Raises UsageError when benchmarks have unequal numbers of seeds.
    """
    groups = dict(categories)
    if overall:
        groups[overall] = [row for rows in categories.values() for row in rows]
    return [_average(name, rows, scores, rounding, digits) for name, rows in groups.items()]


def _average(
    category: str, rows: Sequence[str], scores: Mapping[str, Sequence[Number]], rounding: Rounding, digits: int
) -> CategoryAverage:
    missing = tuple(row for row in rows if not scores.get(row))
    spread = None
    if not missing and rows:
        spread = over_seeds(_per_seed(rows, scores, rounding=rounding, digits=digits))
    return CategoryAverage(category=category, benchmarks=tuple(rows), spread=spread, missing=missing)


def _per_seed(
    rows: Sequence[str], scores: Mapping[str, Sequence[Number]], *, rounding: Rounding = "exact", digits: int = 2
) -> list[Number]:
    """The rows' mean of each seed. Raises UsageError when the rows have unequal numbers of seeds."""
    counts = {row: len(scores[row]) for row in rows}
    if len(set(counts.values())) > 1:
        described = ", ".join(f"{row} {count}" for row, count in counts.items())
        raise UsageError(f"unequal numbers of seeds: {described}", hint="evaluate every seed on every benchmark")
    seeds = range(next(iter(counts.values())))
    if rounding == "paper":
        cells = [[half_up(scores[row][seed], digits) for row in rows] for seed in seeds]
        return [half_up(mean_of(column), digits) for column in cells]
    return [mean_of([scores[row][seed] for row in rows]) for seed in seeds]


def paired_seeds(first: Sequence[float], second: Sequence[float]) -> Spread:
    """Second minus first, seed by seed (both in the same order of seeds)."""
    return over_seeds([exactly(b) - exactly(a) for a, b in zip(first, second, strict=True)])
