"""Runs side by side: area under the validation curve and benchmark accuracy, mean and spread over seeds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any

from infuser_core.report.comparison import Contrast, contrasts
from infuser_core.report.queries import listed

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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Test:
    """A run's accuracy on its first benchmark."""

    benchmark: str
    """Benchmark label."""
    accuracy: float
    """At the selected checkpoint."""


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
    curves, tests = areas_of(query, list(variants)), _tests_of(query, list(variants))
    return [
        _row(
            variant,
            len(names),
            [curves[run] for run in names if run in curves],
            [tests[run] for run in names if run in tests],
            [row for row in found if row.variant == variant or len(groups) == 1],
        )
        for variant, names in groups.items()
    ]


def _row(
    variant: str, runs: int, areas: Sequence[float], tests: Sequence[_Test], differences: Sequence[Contrast]
) -> Comparison:
    scores = [test.accuracy for test in tests]
    return Comparison(
        variant=variant,
        runs=runs,
        auc=mean(areas) if areas else float("nan"),
        auc_sd=_spread(areas),
        auc_low=min(areas, default=float("nan")),
        auc_high=max(areas, default=float("nan")),
        test=mean(scores) if scores else float("nan"),
        test_sd=_spread(scores),
        benchmark=", ".join(sorted({test.benchmark for test in tests})),
        differences=tuple(differences),
    )


def areas_of(query: Query, runs: Sequence[str]) -> dict[str, float]:
    """Area under each run's validation curve over the number of iterations; runs without validations are left out."""
    rows = query(f"""
        select run, iteration, accuracy from benchmark_scores
        where run in {listed(runs)} and phase = 'validate' order by run, iteration""")
    curves: dict[str, list[tuple[int, float]]] = {}
    for row in rows:
        curves.setdefault(row["run"], []).append((int(row["iteration"]), float(row["accuracy"])))
    return {run: area(*zip(*curve, strict=True)) for run, curve in curves.items()}


def _tests_of(query: Query, runs: Sequence[str]) -> dict[str, _Test]:
    rows = query(f"""
        select run, min(b.benchmark) as benchmark, arg_min(b.accuracy, b.benchmark) as accuracy
        from benchmark_scores b join selections s using (run)
        where run in {listed(runs)} and b.phase = 'evaluate' and b.iteration = s.selected_iteration group by run""")
    return {row["run"]: _Test(benchmark=row["benchmark"], accuracy=float(row["accuracy"])) for row in rows}


def _spread(values: Sequence[float]) -> float:
    return stdev(values) if len(values) > 1 else 0.0
