"""Report sections on evaluations, by variant: benchmarks, categories, pass@k, and the leakage split."""

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

from infuser_core.errors import UsageError
from infuser_core.evaluation.benchmarks.parts.loader import describe_benchmark
from infuser_core.evaluation.benchmarks.parts.validation import question_key
from infuser_core.evaluation.statistics.bootstrap import leakage
from infuser_core.evaluation.statistics.passk import PassPoint, pass_curve, powers_of_two
from infuser_core.evaluation.statistics.tally import Tally
from infuser_core.plugins import BENCHMARKS
from infuser_core.results.report import charts
from infuser_core.results.report.charts import ChartSeries, series_of
from infuser_core.results.report.content import (
    Formats,
    Query,
    ReportSection,
    ReportTable,
    Row,
    percent,
    points,
    points_interval,
    table,
    text,
)
from infuser_core.results.report.queries import (
    ANCHOR,
    MEASURED,
    ReportRun,
    anchor_sql,
    bar_chart,
    literal,
    rows_by,
    runs_sql,
    tally_of,
    variants,
)
from infuser_core.schemas import Question

MOST_NAMES = 14


def benchmarks(query: Query, runs: Sequence[ReportRun]) -> ReportSection:
    """Section on benchmark accuracy of the anchor (the pre-trained base model) and the selected checkpoints."""
    rows = ranked(
        query(f"""{runs_sql(runs)},
{MEASURED},
shown AS (SELECT DISTINCT {anchor_sql(runs)}, artifact_key, benchmark, checkpoint, accuracy FROM measured)
SELECT variant, benchmark, checkpoint, count(*) AS runs, avg(accuracy) AS mean,
    stddev_samp(accuracy) AS "sd over seeds", min(accuracy) AS smallest, max(accuracy) AS largest
FROM shown GROUP BY variant, benchmark, checkpoint ORDER BY benchmark, checkpoint, variant"""),
        runs,
    )
    if not rows:
        return ReportSection(title="Benchmarks")
    names = sorted({text(row["benchmark"]) for row in rows})
    caption = "Accuracy of the anchor and of the selected checkpoints; whiskers: smallest to largest seed"
    figure = bar_chart(caption, rows, "benchmark", names, name="benchmarks", label="accuracy", share=True)
    formats: Formats = dict.fromkeys(("mean", "sd over seeds", "smallest", "largest"), percent)
    return ReportSection(
        title="Benchmarks", figures=[figure], tables=[table("Accuracy on the benchmarks", rows, formats)]
    )


def ranked(rows: Sequence[Row], runs: Sequence[ReportRun]) -> list[Row]:
    """Sort rows: anchors first, then variants in the order of the runs."""
    places = {variant: at for at, variant in enumerate(variants(runs))}
    return sorted(rows, key=lambda row: -1 if row["checkpoint"] == ANCHOR else places[str(row["variant"])])


def categories(query: Query, runs: Sequence[ReportRun]) -> ReportSection:
    """Section on accuracy by the categories of benchmarks, or by the questions' domains if there are no categories."""
    title, what = "Categories", "category"
    benchmark_rows = query(f"""{runs_sql(runs)},
{MEASURED}
SELECT DISTINCT benchmark FROM measured ORDER BY benchmark""")
    rows = ranked(_by_category(query, runs, [row["benchmark"] for row in benchmark_rows]), runs)
    if not rows:
        what, rows = "domain", ranked(_by_domain(query, runs), runs)
    if not rows:
        return ReportSection(title=title)
    names = sorted({text(row[what]) for row in rows})[:MOST_NAMES]
    caption = f"Accuracy by {what}; whiskers: smallest to largest seed"
    figure = bar_chart(caption, rows, what, names, name="categories", label="accuracy", share=True)
    formats: Formats = {"mean": percent, "sd over seeds": percent}
    tables = [table(f"Accuracy by {what}", rows, formats, without=("smallest", "largest"))]
    return ReportSection(title=title, figures=[figure], tables=tables)


def _by_category(query: Query, runs: Sequence[ReportRun], names: Sequence[str]) -> list[Row]:
    """Accuracy by category: unweighted mean over a category's benchmarks, averaged over runs."""
    registered = set(BENCHMARKS.names())
    benchmarks = {name: describe_benchmark(name) for name in names if name in registered}
    pairs = [
        f"({literal(name)}, {literal(benchmark.category)})"
        for name, benchmark in benchmarks.items()
        if benchmark and benchmark.category not in ("nano", "other")
    ]
    if not pairs:
        return []
    return query(f"""{runs_sql(runs)},
{MEASURED},
categories(benchmark, category) AS (VALUES {", ".join(pairs)}),
per_run AS (
    SELECT {anchor_sql(runs)}, run, category, checkpoint, avg(accuracy) AS accuracy
    FROM measured JOIN categories USING (benchmark) GROUP BY ALL)
{_OVER_RUNS.format(what="category")}""")


def _by_domain(query: Query, runs: Sequence[ReportRun]) -> list[Row]:
    """Accuracy by domain: over all questions of the domain, averaged over seeds."""
    return query(f"""{runs_sql(runs)},
counted AS (
    SELECT c.variant, q.artifact_key, q.domain,
        CASE WHEN q.iteration = 0 THEN 'anchor' ELSE 'selected' END AS checkpoint,
        sum(q.num_correct / q.num_samples) AS points, count(*) AS questions, c.run, c.seed
    FROM question_scores q JOIN chosen c ON c.run = q.run JOIN selections s ON s.run = q.run
    WHERE q.phase = 'evaluate' AND q.num_samples > 0 AND q.domain <> '' AND q.iteration IN (0, s.selected_iteration)
    GROUP BY ALL),
per_run AS (
    SELECT {anchor_sql(runs)}, seed, domain, checkpoint, avg(accuracy) AS accuracy
    FROM (SELECT variant, run, seed, domain, checkpoint, sum(points) / sum(questions) AS accuracy
        FROM counted GROUP BY ALL)
    GROUP BY ALL)
{_OVER_RUNS.format(what="domain")}""")


_OVER_RUNS = """SELECT variant, {what}, checkpoint, count(*) AS runs, avg(accuracy) AS mean,
    stddev_samp(accuracy) AS "sd over seeds", min(accuracy) AS smallest, max(accuracy) AS largest
FROM per_run GROUP BY variant, {what}, checkpoint ORDER BY {what}, checkpoint, variant"""


def pass_at_k(query: Query, runs: Sequence[ReportRun]) -> ReportSection:
    """Section on pass@k of anchor and selected checkpoint, for benchmarks with several saved answers per question."""
    title = "pass@k"
    counts = _counts(query, runs)
    curves: dict[str, dict[str, list[list[PassPoint]]]] = {}
    for (variant, _, benchmark, checkpoint), tally in counts.items():
        most = min(tally.samples_Q, default=1)
        if most > 1:
            curve = pass_curve(tally, powers_of_two(int(most)))
            curves.setdefault(benchmark, {}).setdefault(f"{variant}, {checkpoint}", []).append(curve)
    if not curves:
        return ReportSection(title=title)
    rows = [
        {
            "benchmark": benchmark,
            "checkpoint": label,
            "k": point.k,
            "pass@k": mean(seed[at].value for seed in seeds),
            "runs": len(seeds),
        }
        for benchmark, labels in curves.items()
        for label, seeds in labels.items()
        for at, point in enumerate(seeds[0][: min(map(len, seeds))])
    ]
    drawings = []
    for at, (benchmark, mine) in enumerate(rows_by(rows, "benchmark").items()):
        layers = [series_of(label, points, "pass@k", x="k") for label, points in rows_by(mine, "checkpoint").items()]
        ticks = max((one.x for one in layers), key=len)
        drawings.append(
            charts.lines(
                f"pass@k on {benchmark}, unbiased, mean over seeds", layers, name=f"pass-{at}", label="pass@k",
                share=True, xlabel="k, answers tried", ticks=ticks,
            )
        )  # fmt: skip
    return ReportSection(title=title, figures=drawings, tables=[table("pass@k", rows, {"pass@k": percent})])


Place = tuple[str, str, str, str]
"""Variant, run, benchmark, checkpoint."""


def _counts(query: Query, runs: Sequence[ReportRun]) -> dict[Place, Tally]:
    rows = query(f"""{runs_sql(runs)}
SELECT c.variant, c.run, q.benchmark, CASE WHEN q.iteration = 0 THEN 'anchor' ELSE 'selected' END AS checkpoint,
    q.question_id, any_value(q.num_samples) AS num_samples, any_value(q.num_correct) AS num_correct
FROM question_scores q JOIN chosen c ON c.run = q.run JOIN selections s ON s.run = q.run
WHERE q.phase = 'evaluate' AND q.num_samples > 0 AND q.iteration IN (0, s.selected_iteration)
GROUP BY ALL ORDER BY ALL""")
    places: dict[Place, list[Row]] = {}
    for row in rows:
        place = (text(row["variant"]), str(row["run"]), text(row["benchmark"]), text(row["checkpoint"]))
        places.setdefault(place, []).append(row)
    return {place: tally_of(members) for place, members in places.items()}


def leakage_split(query: Query, runs: Sequence[ReportRun]) -> ReportSection:
    """Section on gains: benchmark questions that are in the dev set against all others (paper: dev leakage)."""
    title = "Leakage split"
    members = _dev_members(query, runs)
    tallies = _counts(query, runs) if members else {}
    splits: dict[tuple[str, str], dict[str, Any]] = {}
    whole = set()
    for (variant, run, benchmark, checkpoint), tally in tallies.items():
        base = tallies.get((variant, run, benchmark, "anchor"))
        inside = members.get((run, benchmark))
        if checkpoint != "selected" or base is None or not inside:
            continue
        try:
            splits[run, benchmark] = leakage(base, tally, inside)
        except UsageError:
            whole.add(benchmark)
    if not splits:
        note = f"All questions of these benchmarks were trained towards: {', '.join(sorted(whole))}."
        return ReportSection(title=title, lines=[note] if whole else [])
    names = [f"{benchmark}, {run}" for run, benchmark in splits]
    layers = [
        ChartSeries(
            label=label,
            x=list(range(len(splits))),
            y=[100 * one["delta"] for one in sides],
            low=[100 * one["low"] for one in sides],
            high=[100 * one["high"] for one in sides],
        )
        for label, sides in (
            ("dev members", [one["dev"] for one in splits.values()]),
            ("all others", [one["rest"] for one in splits.values()]),
        )
    ]
    caption = "Gain on dev members and on all other questions, 95% intervals"
    figure = charts.groups(caption, names, layers, name="leakage", label="gain in accuracy, points")
    gaps = [
        f"{run}, {benchmark}: gain on dev members minus gain on all others: {points(one['gap'])} points "
        f"[{points(one['gap_low'])}, {points(one['gap_high'])}]"
        for (run, benchmark), one in splits.items()
    ]
    return ReportSection(title=title, lines=gaps, figures=[figure], tables=[_split_table(splits)])


def _split_table(splits: Mapping[tuple[str, str], Mapping[str, Any]]) -> ReportTable:
    rows = [
        {
            "run": run,
            "benchmark": benchmark,
            "questions of": label,
            "questions": side["questions"],
            "anchor": side["base"],
            "selected": side["trained"],
            "gain, points": side["delta"],
            "95% interval": (side["low"], side["high"]),
        }
        for (run, benchmark), one in splits.items()
        for label, side in (("dev members", one["dev"]), ("all others", one["rest"]), ("whole", one["full"]))
    ]
    formats: Formats = {"anchor": percent, "selected": percent, "gain, points": points, "95% interval": points_interval}
    return table("Gain by dev membership", rows, formats)


def _dev_members(query: Query, runs: Sequence[ReportRun]) -> Mapping[tuple[str, str], set[str]]:
    """Benchmark questions that are also in the dev set, by run and benchmark, matched by their text."""
    dev = query(f"""{runs_sql(runs)}
SELECT DISTINCT r.run, r.question_id, r.text, r.choices FROM reference_questions r JOIN chosen c ON c.run = r.run
WHERE r.artifact_key IN (SELECT input_key FROM artifact_inputs WHERE input = 'dev') ORDER BY ALL""")
    questions = query(f"""{runs_sql(runs)}
SELECT DISTINCT a.run, v.benchmark, a.question_id, a.text, a.choices
FROM asked_questions a JOIN chosen c ON c.run = a.run
JOIN artifact_inputs i ON i.input_key = a.artifact_key AND i.input = 'responses'
JOIN benchmark_scores v ON v.artifact_key = i.artifact_key AND v.run = a.run AND v.phase = 'evaluate'
ORDER BY ALL""")
    dev_keys = {(row["run"], _key(row)) for row in dev}
    members: dict[tuple[str, str], set[str]] = {}
    for row in questions:
        if (row["run"], _key(row)) in dev_keys:
            members.setdefault((str(row["run"]), text(row["benchmark"])), set()).add(str(row["question_id"]))
    return members


def _key(row: Row) -> str:
    return question_key(
        Question(
            question_id="", text=str(row["text"]), choices=list(row["choices"] or []), answer="", verifier="",
            domain="", subdomain="", 
        )
    )  # fmt: skip
