"""Studies of several runs as one table: means over runs, and paired differences to the first row, with t intervals."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from infuser_core.statistics.averages import over_seeds


def over_runs(
    tables: Iterable[tuple[str, Sequence[Mapping[str, Any]]]], *, name: str, value: str, first: str
) -> list[dict[str, Any]]:
    """Rows of every run's table, pooled by variant. What some run of a variant lacks is left out.

    `name` and `value` are columns, `first` the name that others are compared with; a column `target` parts measures.
    A row has the mean over the runs and, paired by run, how far it is `behind` the first, each with a 95% t interval,
    None for a single run; and in how many runs it is lower.
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


def _pooled(variant: str, measure: str, name: str, values: Sequence[float], firsts: Sequence[float]) -> dict[str, Any]:
    gaps = [first - value for first, value in zip(firsts, values, strict=True)]
    mean, gap = over_seeds(values), over_seeds(gaps)
    return {
        "variant": variant,
        "measure": measure,
        "name": name,
        "mean": round(float(mean.mean), 4),
        "low": _rounded(mean.low),
        "high": _rounded(mean.high),
        "behind": round(float(gap.mean), 4),
        "behind_low": _rounded(gap.low),
        "behind_high": _rounded(gap.high),
        "lower_in": sum(each > 0 for each in gaps),
        "runs": mean.seeds,
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
