"""Runs side by side: area under the validation curve and benchmark accuracy, mean and spread over seeds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any

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
    """Mean over runs of the area under the validation curve, divided by the number of iterations."""
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


def area(iterations: Sequence[int], accuracies: Sequence[float]) -> float:
    """Trapezoidal area under the curve over its span of iterations; the single value when there is no span."""
    span = iterations[-1] - iterations[0]
    if span == 0:
        return accuracies[0]
    steps = zip(iterations, iterations[1:], accuracies, accuracies[1:], strict=False)
    return sum((right - left) * (a + b) / 2 for left, right, a, b in steps) / span


def compare_runs(query: Query, variants: Mapping[str, str]) -> list[Comparison]:
    """One row per variant, in order of first appearance."""
    groups: dict[str, list[str]] = {}
    for run, variant in variants.items():
        groups.setdefault(variant, []).append(run)
    return [_row(query, variant, names) for variant, names in groups.items()]


def _row(query: Query, variant: str, names: Sequence[str]) -> Comparison:
    areas = [_area_of(query, run) for run in names]
    tests = [_test_of(query, run) for run in names]
    labels = {label for label, _ in tests if label}
    scores = [score for label, score in tests if label]
    return Comparison(
        variant=variant,
        runs=len(names),
        auc=mean(areas),
        auc_sd=_spread(areas),
        auc_low=min(areas),
        auc_high=max(areas),
        test=mean(scores) if scores else float("nan"),
        test_sd=_spread(scores),
        benchmark=", ".join(sorted(labels)),
    )


def _area_of(query: Query, run: str) -> float:
    rows = query(f"""
        select iteration, accuracy from benchmark_scores
        where run = {literal(run)} and phase = 'validate' order by iteration""")
    return area([int(row["iteration"]) for row in rows], [float(row["accuracy"]) for row in rows])


def _test_of(query: Query, run: str) -> tuple[str, float]:
    rows = query(f"""
        select b.benchmark, b.accuracy from benchmark_scores b join selections s using (run)
        where run = {literal(run)} and b.phase = 'evaluate' and b.iteration = s.selected_iteration
        order by b.benchmark limit 1""")
    return (str(rows[0]["benchmark"]), float(rows[0]["accuracy"])) if rows else ("", 0.0)


def _spread(values: Sequence[float]) -> float:
    return stdev(values) if len(values) > 1 else 0.0
