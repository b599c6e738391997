"""Exact averages over the seeds of one method or over several runs, and rounding of numbers for print."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

from infuser_core.errors import UsageError

Number = int | float | Decimal | Fraction


def format_decimal(value: Number, digits: int = 2) -> str:
    """Format a number with `digits` decimals, ties away from zero. A float is read as its shortest decimal form."""
    exact = as_fraction(value)
    scaled = abs(exact) * 10**digits
    whole = (2 * scaled.numerator + scaled.denominator) // (2 * scaled.denominator)
    return f"{Decimal(-whole if exact < 0 else whole).scaleb(-digits):.{digits}f}"


def as_fraction(value: Number) -> Fraction:
    """Convert a number to an exact fraction; a float is read as its shortest decimal form."""
    return Fraction(repr(value)) if isinstance(value, float) else Fraction(value)


def mean_of(values: Sequence[Number]) -> Fraction:
    """Exact mean of numbers."""
    return sum((as_fraction(value) for value in values), Fraction(0)) / len(values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Mean and spread of one number over several seeds."""

    mean: Fraction
    sd: float | None = None
    """Sample standard deviation (n - 1); None for a single seed. It is not a confidence interval."""
    low: float | None = None
    """Lower end of the 95% t interval of the mean; None for a single seed."""
    high: float | None = None
    seeds: int = 1


def over_seeds(values: Sequence[Number]) -> Spread:
    """Mean, sample standard deviation and 95% t interval (n - 1 degrees of freedom; for n = 3: +-4.303 s / sqrt(3)).

    Raises UsageError without values.
    """
    if not values:
        raise UsageError("no seeds to average", hint="name at least one finished run")
    mean, count = mean_of(values), len(values)
    if count == 1:
        return Spread(mean=mean)
    sd = math.sqrt(sum((as_fraction(value) - mean) ** 2 for value in values) / (count - 1))
    half = t_quantile(count - 1) * sd / math.sqrt(count)
    return Spread(mean=mean, sd=sd, low=float(mean) - half, high=float(mean) + half, seeds=count)


def t_quantile(freedom: int) -> float:
    """Two-sided critical value of Student's t at 5%."""
    # Imported here: printing saved results needs no scipy.
    from scipy.special import stdtrit

    return float(stdtrit(freedom, 0.975))


def over_runs(
    tables: Iterable[tuple[str, Sequence[Mapping[str, Any]]]], *, name: str, value: str, first: str
) -> list[dict[str, Any]]:
    """Average the rows of tables over the runs of each variant. A row that one of its runs lacks is left out.

    `name` and `value` are columns, `first` is the name that others are compared with; a column `target` separates
    measured quantities. A row has the mean over the runs and, paired by run, how far it is `behind` the first, each
    with a 95% t interval, None for a single run; and the number of runs in which it is lower.
    """
    by_variant: dict[str, list[dict[tuple[str, str], float]]] = {}
    for variant, rows in tables:
        values_of_run = {(str(row.get("target", "")), str(row[name])): float(row[value]) for row in rows}
        by_variant.setdefault(variant, []).append(values_of_run)
    pooled = []
    for variant, runs in by_variant.items():
        for measure, label in runs[0]:
            if all((measure, each) in run for run in runs for each in (label, first)):
                values, firsts = ([run[measure, each] for run in runs] for each in (label, first))
                gaps = [base - other for base, other in zip(firsts, values, strict=True)]
                mean, gap = over_seeds(values), over_seeds(gaps)
                pooled.append(
                    {
                        "variant": variant,
                        "measure": measure,
                        "name": label,
                        "mean": round(float(mean.mean), 4),
                        "low": _round(mean.low),
                        "high": _round(mean.high),
                        "behind": round(float(gap.mean), 4),
                        "behind_low": _round(gap.low),
                        "behind_high": _round(gap.high),
                        "lower_in": sum(each > 0 for each in gaps),
                        "runs": mean.seeds,
                    }
                )
    return pooled


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
