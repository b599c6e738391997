"""Comparison of runs by variant: means over seeds, and paired differences with intervals over questions and seeds."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from statistics import mean, stdev
from textwrap import wrap
from typing import Any

from infuser_core.config.phase_table import Phase
from infuser_core.errors import match_name
from infuser_core.evaluation.statistics.averages import Spread, as_fraction, over_seeds
from infuser_core.evaluation.statistics.bootstrap import detectable, paired_difference
from infuser_core.evaluation.statistics.tally import Tally, accuracy, common_questions, mean_shares
from infuser_core.results.report.charts import Row
from infuser_core.results.report.content import Formats, Query, ReportSection, points, points_interval
from infuser_core.results.report.content import table as as_table
from infuser_core.results.report.queries import ReportRun, report_runs, runs_sql, tally_of
from infuser_core.store import runs
from infuser_core.store.store import Store
from infuser_core.store.views import Lens
from infuser_core.terminal import format_rows, to_json

Exam = tuple[str, str]
"""Phase (evaluate or validate) and benchmark label."""
AUC = "validation AUC"
"""Mean validation accuracy over the iterations: rewards a variant for being good early, not only at the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """Accuracy of `variant` minus that of `against` on one benchmark, at the checkpoint that each run selected."""

    phase: str
    """evaluate, or validate. Checkpoints were selected on the validation set, so its differences are no test."""
    benchmark: str
    """Benchmark label, or `validation AUC`."""
    variant: str
    """The second variant of the pair."""
    against: str
    """The first variant of the pair."""
    difference: float | None = None
    """Mean difference over common questions (AUC: of the areas), runs of a variant averaged; None without questions."""
    low: float | None = None
    """2.5% quantile of a bootstrap over questions, paired by question; the runs are fixed."""
    high: float | None = None
    """97.5% quantile of this bootstrap."""
    sign_share: float | None = None
    """Twice the smaller share of bootstrap draws on one side of zero; small if the sign is clear."""
    detectable: float | None = None
    """Smallest true difference that this many questions detect with 80% power at 5%; None if no question differs."""
    questions: int = 0
    """Questions that every run answered."""
    left_out: int = 0
    """Questions that some run did not answer, excluded from all numbers of this row."""
    seeds: int = 0
    """Seeds that both variants have; 0 if their seeds differ."""
    seed_sd: float | None = None
    """Sample standard deviation of the difference over common seeds; None for fewer than two."""
    seed_low: float | None = None
    """Lower end of the 95% t interval over common seeds; the questions are fixed."""
    seed_high: float | None = None
    """Upper end of the interval over seeds."""
    verdict: str
    """above or below: every interval excludes zero; within noise: one contains zero; unknown: one is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Data for a comparison of runs, read in one pass over their files."""

    groups: Mapping[str, Sequence[str]]
    """Variant to its runs, in order of first appearance."""
    methods: Collection[str]
    """Variants that are a configuration as it is, or are called infuser; the others are controls."""
    seeds: Mapping[str, int]
    """Run to its seed."""
    areas: Mapping[str, float]
    """Run to its area under the validation curve, per iteration; absent for runs without validations."""
    tallies: Mapping[str, Mapping[Exam, Tally]]
    """Run to right answers per question of every evaluation at its selected checkpoint."""


def read_comparison(query: Query, runs: Sequence[ReportRun]) -> Comparison:
    """Read the accuracies, seeds and variants by which runs are compared."""
    groups: dict[str, list[str]] = {}
    for one in runs:
        groups.setdefault(one.variant, []).append(one.run)
    rows = query(f"""{runs_sql(runs)}
SELECT run, iteration, accuracy FROM benchmark_scores JOIN chosen USING (run)
WHERE phase = 'validate' ORDER BY run, iteration""")
    curves: dict[str, list[tuple[int, float]]] = {}
    for row in rows:
        curves.setdefault(row["run"], []).append((row["iteration"], row["accuracy"]))
    return Comparison(
        groups=groups,
        methods={one.variant for one in runs if one.leaves.get("variant") in (None, "", "infuser")},
        seeds={one.run: one.seed for one in runs},
        areas={run: area(*zip(*curve, strict=True)) for run, curve in curves.items()},
        tallies=tallies(query, runs),
    )


def area(iterations: Sequence[int], accuracies: Sequence[float]) -> float:
    """Trapezoidal area under a curve divided by its span of iterations; the accuracy itself for a single point."""
    span = iterations[-1] - iterations[0]
    if span == 0:
        return accuracies[0]
    steps = zip(iterations, iterations[1:], accuracies, accuracies[1:], strict=False)
    return sum((right - left) * (a + b) / 2 for left, right, a, b in steps) / span


def tallies(query: Query, runs: Sequence[ReportRun]) -> dict[str, dict[Exam, Tally]]:
    """Right answers per question at each run's selected checkpoint, by run and evaluation, read in one pass."""
    rows = query(f"""{runs_sql(runs)}
SELECT q.run, q.phase, q.benchmark, q.question_id, q.num_samples, q.num_correct
FROM question_scores q JOIN chosen c ON c.run = q.run JOIN selections s ON s.run = q.run
WHERE q.iteration = s.selected_iteration AND q.phase IN ('evaluate', 'validate') AND q.num_samples > 0
ORDER BY q.run, q.phase, q.benchmark, q.question_id""")
    exams: dict[str, dict[Exam, list[Row]]] = {one.run: {} for one in runs}
    for row in rows:
        exams[row["run"]].setdefault((row["phase"], row["benchmark"]), []).append(row)
    return {run: {exam: tally_of(mine) for exam, mine in by_exam.items()} for run, by_exam in exams.items()}


def summaries(comparison: Comparison) -> list[dict[str, Any]]:
    """One row per variant: area under the validation curve and accuracy on the first benchmark; None if unknown."""
    tallies_of = comparison.tallies.items()
    exams = {run: [exam for exam in by_exam if exam[0] == "evaluate"][:1] for run, by_exam in tallies_of}
    return [
        {
            "variant": variant,
            "runs": len(runs),
            **_spread("auc", areas := [comparison.areas[run] for run in runs if run in comparison.areas]),
            "auc_low": min(areas, default=None),
            "auc_high": max(areas, default=None),
            **_spread("test", [accuracy(comparison.tallies[run][exam]) for run in runs for exam in exams[run]]),
            "benchmark": ", ".join(sorted({exam[1] for run in runs for exam in exams[run]})),
        }
        for variant, runs in comparison.groups.items()
    ]


def _spread(name: str, values: Sequence[float]) -> dict[str, float | None]:
    sd = stdev(values) if len(values) > 1 else 0.0
    return {name: mean(values) if values else None, f"{name}_sd": sd}


def contrasts(comparison: Comparison, against: str = "") -> list[Contrast]:
    """Differences of all pairs of variants, or of all from `against`, on every benchmark and in AUC.

    With a single variant, its runs are compared with each other.
    """
    runs = {run: [run] for names in comparison.groups.values() for run in names}
    units = comparison.groups if len(comparison.groups) > 1 else runs
    if against:
        against = match_name(against, comparison.groups, kind="variant")
    # The method comes second, so that its differences from controls are method minus control.
    ordered = sorted(units, key=comparison.methods.__contains__)
    pairs = [(against, name) for name in comparison.groups if name != against] if against else combinations(ordered, 2)
    return [row for first, second in pairs for row in _against(comparison, first, units[first], second, units[second])]


def _against(
    comparison: Comparison, first: str, base: Sequence[str], second: str, other: Sequence[str]
) -> list[Contrast]:
    """Compare two groups of runs on every benchmark that all of them have, and by their areas under the curve."""
    run_tallies = [comparison.tallies[run] for run in [*base, *other]]
    rows = []
    for phase, label in (exam for exam in run_tallies[0] if all(exam in one for one in run_tallies)):
        sides = [{run: comparison.tallies[run][phase, label] for run in runs} for runs in (base, other)]
        over = _over_seeds(comparison.seeds, *({run: accuracy(tally) for run, tally in side.items()} for side in sides))
        paired = _paired(*(list(side.values()) for side in sides))
        verdict = _verdict(over, (paired["low"], paired["high"]))
        labels: dict[str, Any] = {"phase": phase, "benchmark": label, "variant": second, "against": first}
        rows.append(Contrast(**labels, **paired, **_seeds(over), verdict=verdict))
    if all(run in comparison.areas for run in [*base, *other]):
        areas = [{run: comparison.areas[run] for run in runs} for runs in (base, other)]
        over = _over_seeds(comparison.seeds, *areas)
        labels = {"phase": Phase.VALIDATE, "benchmark": AUC, "variant": second, "against": first}
        gap = mean(areas[1].values()) - mean(areas[0].values())
        rows.append(Contrast(**labels, difference=gap, **_seeds(over), verdict=_verdict(over)))
    return rows


def _paired(base: Sequence[Tally], other: Sequence[Tally]) -> dict[str, Any]:
    """Paired difference over the questions that all runs answered."""
    ids, left_out = common_questions([*base, *other])
    if not ids:
        return {"low": None, "high": None, "left_out": left_out}
    values = [mean_shares(side, ids) for side in (base, other)]
    paired = paired_difference(values[0], values[1], left_out=left_out)
    return {
        "difference": paired.value,
        "low": paired.low,
        "high": paired.high,
        "sign_share": paired.share,
        "detectable": detectable(values[1] - values[0]),
        "questions": len(ids),
        "left_out": left_out,
    }


def _seeds(over: Spread | None) -> dict[str, Any]:
    if over is None:
        return {}
    return {"seeds": over.seeds, "seed_sd": over.sd, "seed_low": over.low, "seed_high": over.high}


def _verdict(over: Spread | None, *questions: tuple[float | None, float | None]) -> str:
    """Judge whether a difference exceeds the noise over seeds and over questions; areas have no questions."""
    ends = [(over.low, over.high) if over else (None, None), *questions]
    complete = [(lower, upper) for lower, upper in ends if lower is not None and upper is not None]
    if len(complete) < len(ends):
        return "unknown"
    if all(lower > 0 for lower, _ in complete):
        return "above"
    return "below" if all(upper < 0 for _, upper in complete) else "within noise"


def _over_seeds(seeds: Mapping[str, int], *sides: Mapping[str, float]) -> Spread | None:
    """Paired difference over seeds; None unless both sides have exactly one run for each of the same seeds."""
    base, other = ({seeds[run]: value for run, value in side.items()} for side in sides)
    if base.keys() != other.keys() or any(len(base) != len(side) for side in sides):
        return None
    return over_seeds([as_fraction(other[seed]) - as_fraction(base[seed]) for seed in sorted(base)])


def compare(root: Path, names: Sequence[str], *, as_json: bool, against: str = "") -> str:
    """Compare runs by variant, with differences between variants (or from `against`), as tables or JSON."""
    names = runs.finished_runs(root, names)
    with closing(Lens(Store(root), runs=names)) as lens:
        comparison = read_comparison(lens.query, report_runs({name: runs.read_config(root, name) for name in names}))
    rows, gaps = summaries(comparison), contrasts(comparison, against)
    if as_json:
        # With a single variant, the differences are those between its runs.
        own = [[asdict(gap) for gap in gaps if len(rows) == 1 or gap.variant == row["variant"]] for row in rows]
        return to_json([{**row, "differences": each} for row, each in zip(rows, own, strict=True)])
    without = ("auc_sd", "auc_low", "auc_high", "test_sd") if all(row["runs"] == 1 for row in rows) else ()
    short = [{name: _three_digits(row[name]) for name in row if name not in without} for row in rows]
    return "\n\n".join([format_rows(short), *_differences_text(gaps)])


def _three_digits(value: Any) -> Any:
    return round(value, 3) if isinstance(value, float) else value


def _differences_text(gaps: Sequence[Contrast]) -> list[str]:
    """The differences as text for a terminal: a table for each pair of variants, and how to read them."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for gap in gaps:
        row = {
            "benchmark": gap.benchmark,
            "difference": points(gap.difference),
            "95% over questions": points_interval((gap.low, gap.high)),
            "95% over seeds": points_interval((gap.seed_low, gap.seed_high)),
            "verdict": gap.verdict if gap.seeds > 1 else "needs more seeds",
        }
        rows.setdefault(f"{gap.variant} minus {gap.against}, points", []).append(row)
    tables = [f"{title}\n{format_rows(pair)}" for title, pair in rows.items()]
    return [*tables, "\n".join(wrap(INTERVALS, 100))] if gaps else []


INTERVALS = (
    "Paired by question at the selected checkpoints. The interval over questions holds the runs fixed, the one over "
    "seeds holds the questions fixed; the validation set chose the checkpoints, so its rows are no test."
)
DIFFERENCES = (
    f"{INTERVALS} What is detectable is the smallest difference that this many questions show with 80% power at 5%."
)


def section(gaps: Sequence[Contrast]) -> ReportSection:
    """Section on differences between variants, as a table with intervals and verdicts."""
    if not gaps:
        return ReportSection(title="Differences")
    rows = [
        {
            "benchmark": gap.benchmark if gap.phase == Phase.EVALUATE else f"{gap.benchmark} (chose the checkpoint)",
            "difference": f"{gap.variant} minus {gap.against}",
            "by, points": gap.difference,
            "95% over questions": (gap.low, gap.high),
            "detectable": gap.detectable,
            "questions": gap.questions,
            "seeds": gap.seeds,
            "95% over seeds": (gap.seed_low, gap.seed_high),
            "verdict": gap.verdict,
        }
        for gap in gaps
    ]
    formats: Formats = {"by, points": points, "detectable": lambda size: points(size).lstrip("+")}
    formats = {**formats, "95% over questions": points_interval, "95% over seeds": points_interval, "verdict": str}
    differences = as_table("Differences between variants", rows, formats)
    return ReportSection(title="Differences", lines=[DIFFERENCES], tables=[differences])
