"""Studies of several runs as one table: means over runs, and paired differences to the first row, with t intervals."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from infuser_core.statistics.averages import over_seeds


@dataclass(frozen=True, slots=True, kw_only=True)
class OverRuns:
    """A row of a study, over the runs of a variant."""

    variant: str
    """Base configuration and variant of the runs."""
    measure: str
    """Quantity measured; empty where a study has one."""
    name: str
    """Score or arm."""
    mean: float
    """Mean over the runs."""
    low: float | None
    """Lower end of its 95% t interval over them; None for a single run."""
    high: float | None
    """Upper end."""
    behind: float
    """Mean by which it is below the paper's score, paired by run."""
    behind_low: float | None
    """Lower end of its 95% t interval."""
    behind_high: float | None
    """Upper end."""
    lower_in: int
    """Runs in which it is below the paper's score."""
    runs: int
    """Runs."""


def over_runs(
    tables: Iterable[tuple[str, Sequence[Mapping[str, Any]]]], *, name: str, value: str, first: str
) -> list[OverRuns]:
    """Rows of every run's table, with its variant, pooled. What some run of a variant lacks is left out.

    `name` and `value` are columns, `first` the name that others are compared with; a column `target` parts measures.
    """
    found: dict[str, list[dict[tuple[str, str], float]]] = {}
    for variant, rows in tables:
        own = {(str(row.get("target", "")), str(row[name])): float(row[value]) for row in rows}
        found.setdefault(variant, []).append(own)
    pooled = []
    for variant, runs in found.items():
        for measure, each in runs[0]:
            if all((measure, label) in own for own in runs for label in (each, first)):
                values = [own[measure, each] for own in runs]
                pooled.append(_pooled(variant, measure, each, values, [own[measure, first] for own in runs]))
    return pooled


def _pooled(variant: str, measure: str, name: str, values: Sequence[float], firsts: Sequence[float]) -> OverRuns:
    gaps = [first - value for first, value in zip(firsts, values, strict=True)]
    mean, gap = over_seeds(values), over_seeds(gaps)
    return OverRuns(
        variant=variant,
        measure=measure,
        name=name,
        mean=round(float(mean.mean), 4),
        low=_rounded(mean.low),
        high=_rounded(mean.high),
        behind=round(float(gap.mean), 4),
        behind_low=_rounded(gap.low),
        behind_high=_rounded(gap.high),
        lower_in=sum(each > 0 for each in gaps),
        runs=mean.seeds,
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
