"""Contents of the page that compares runs: settings, results, curves and questions next to each other."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from infuser_core.evaluation.statistics.tally import accuracy
from infuser_core.results.report.comparison import Comparison, contrasts, read_comparison
from infuser_core.results.report.queries import ReportRun, differing, report_run, short
from infuser_core.results.view.charts import average, charts
from infuser_core.results.view.run import examples, latest_questions
from infuser_core.store import runs
from infuser_core.store.views import Lens

_PARTS = 2
"""Last parts of a setting's dotted name in a label."""
_MOST_COLUMNS = 4
"""Most runs whose questions are shown next to each other."""


def compared(root: Path, lens: Lens, names: Sequence[str]) -> dict[str, Any]:
    """Template variables of the comparison; differences are to the first variant."""
    members = [report_run(name, runs.read_config(root, name)) for name in names]
    leaves = differing(members)
    variants = {one.run: _label(one, leaves) for one in members}
    labels = _run_labels(members, variants)
    has_seeds = len(set(variants.values())) < len(names)
    comparison = read_comparison(lens.query, [replace(one, variant=variants[one.run]) for one in members])
    curves = charts(lens, labels)
    if has_seeds:
        curves = average(curves, {labels[name]: variants[name] for name in names})
    latest = (latest_questions(root, name) for name in names)
    common = min((number for number in latest if number is not None), default=None)
    return {
        "names": names,
        "labels": labels,
        "lines": list(dict.fromkeys(variants.values() if has_seeds else labels.values())),
        "settings": {leaf: [short(one.leaves.get(leaf)) for one in members] for leaf in leaves},
        "results": _results(comparison, next(iter(variants.values()))),
        "charts": [chart.to_json() for chart in curves],
        "iteration": common,
        "examples": {labels[name]: (name, examples(lens, name, common)) for name in names[:_MOST_COLUMNS]}
        if common is not None
        else {},
    }


def _label(run: ReportRun, leaves: Sequence[str]) -> str:
    """Settings in which a run differs from the others, shortened; its variant if there are none."""
    return " ".join(setting_label(run, leaf) for leaf in leaves[:_PARTS]) or run.variant


def setting_label(run: ReportRun, leaf: str) -> str:
    """A setting of a run with the end of its dotted name, such as `generator.update=true`."""
    return f"{'.'.join(leaf.split('.')[-_PARTS:])}={short(run.leaves.get(leaf))}"


def _run_labels(members: Sequence[ReportRun], variants: dict[str, str]) -> dict[str, str]:
    """Labels of runs: the variant, with the seed if several runs are of it, or else the name of the run."""
    counts = Counter(variants.values())
    labels = {one.run: variants[one.run] for one in members}
    labels |= {one.run: f"{variants[one.run]} seed {one.seed}" for one in members if counts[variants[one.run]] > 1}
    return labels if len(set(labels.values())) == len(members) else {one.run: one.run for one in members}


def _results(comparison: Comparison, first: str) -> list[dict[str, Any]]:
    """One row per evaluation: accuracies of every variant, and the paired difference of each from the first."""
    gaps = contrasts(comparison, first) if len(comparison.groups) > 1 else []
    exams = sorted({exam for tallies in comparison.tallies.values() for exam in tallies}, key=lambda exam: exam[::-1])
    rows = []
    for phase, benchmark in exams:
        cells = []
        for variant, members in comparison.groups.items():
            tallies = [comparison.tallies[run].get((phase, benchmark)) for run in members]
            values = [accuracy(tally) for tally in tallies if tally is not None]
            gap = next((g for g in gaps if (g.benchmark, g.variant) == (benchmark, variant)), None)
            cells.append({"variant": variant, "value": sum(values) / len(values) if values else None, "gap": gap})
        rows.append({"benchmark": benchmark, "cells": cells})
    return rows
