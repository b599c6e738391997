"""Runs side by side: area under the validation curve and benchmark accuracy, mean and spread over seeds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any

from infuser_core.report.contrast import Contrast, contrasts
from infuser_core.report.tables import literal

Query = Callable[[str], list[dict[str, Any]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One variant."""

    variant: str
    """Base configuration and variant."""
    runs: int
    """Runs, one per seed."""
    auc: float
    """Mean over runs of the area under the validation curve, divided by the number of iterations; nan without one."""
    auc_sd: float
    """Sample standard deviation over runs; 0 for a single one."""
    auc_low: float
    """Smallest."""
    auc_high: float
    """Largest."""
    test: float
    """Mean over runs of the selected checkpoint's accuracy on the first benchmark."""
    test_sd: float
    """Sample standard deviation over runs; 0 for a single one."""
    benchmark: str
    """That benchmark."""
    differences: tuple[Contrast, ...] = ()
    """This variant minus each earlier one, on every benchmark that all runs of both have."""


def area(iterations: Sequence[int], accuracies: Sequence[float]) -> float:
    """Trapezoidal area under the curve over its span of iterations; the single value when there is no span."""
    span = iterations[-1] - iterations[0]
    if span == 0:
        return accuracies[0]
    steps = zip(iterations, iterations[1:], accuracies, accuracies[1:], strict=False)
    return sum((right - left) * (a + b) / 2 for left, right, a, b in steps) / span


def compare_runs(
    query: Query, variants: Mapping[str, str], *, seeds: Mapping[str, int] | None = None
) -> list[Comparison]:
    """One row per variant, in order of first appearance, with its differences from the variants before it.

    Where all runs are of one variant its row holds the differences between the runs. `seeds` maps runs to their seeds.
    """
    groups: dict[str, list[str]] = {}
    for run, variant in variants.items():
        groups.setdefault(variant, []).append(run)
    found = contrasts(query, groups, seeds=seeds)
    return [
        _row(query, variant, names, [row for row in found if row.variant == variant or len(groups) == 1])
        for variant, names in groups.items()
    ]


def _row(query: Query, variant: str, names: Sequence[str], differences: Sequence[Contrast]) -> Comparison:
    areas = [found for run in names if (found := area_of(query, run)) is not None]
    tests = [_test_of(query, run) for run in names]
    labels = {label for label, _ in tests if label}
    scores = [score for label, score in tests if label]
    return Comparison(
        variant=variant,
        runs=len(names),
        auc=mean(areas) if areas else float("nan"),
        auc_sd=_spread(areas),
        auc_low=min(areas, default=float("nan")),
        auc_high=max(areas, default=float("nan")),
        test=mean(scores) if scores else float("nan"),
        test_sd=_spread(scores),
        benchmark=", ".join(sorted(labels)),
        differences=tuple(differences),
    )


def area_of(query: Query, run: str) -> float | None:
    """Area under a run's validation curve over the number of iterations; None without validations."""
    rows = query(f"""
        select iteration, accuracy from benchmark_scores
        where run = {literal(run)} and phase = 'validate' order by iteration""")
    if not rows:
        return None
    return area([int(row["iteration"]) for row in rows], [float(row["accuracy"]) for row in rows])


def _test_of(query: Query, run: str) -> tuple[str, float]:
    rows = query(f"""
        select b.benchmark, b.accuracy from benchmark_scores b join selections s using (run)
        where run = {literal(run)} and b.phase = 'evaluate' and b.iteration = s.selected_iteration
        order by b.benchmark limit 1""")
    return (str(rows[0]["benchmark"]), float(rows[0]["accuracy"])) if rows else ("", 0.0)


def _spread(values: Sequence[float]) -> float:
    return stdev(values) if len(values) > 1 else 0.0
