"""Assemble report pages: the list of sections for one run, and for several runs by variant."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from infuser_core.results.lineage.outcome import results
from infuser_core.results.report import charts, comparison, corpus, evaluations, quality, response_format, training
from infuser_core.results.report.charts import Figure
from infuser_core.results.report.content import (
    Formats,
    Query,
    Report,
    ReportSection,
    ReportTable,
    Row,
    interval,
    percent,
    points,
    table,
    text,
)
from infuser_core.results.report.queries import (
    MEASURED,
    Builder,
    ReportRun,
    differing,
    filled,
    literal,
    rows_by,
    runs_sql,
    selected_iteration,
    short,
    spread_series,
    variants,
)

MOST_CHARTS, MOST_TICKS = 6, 8
"""Most settings with a chart (the table has all), and most values marked on the axis of a chart."""


def details(
    query: Query,
    report_run: ReportRun,
    *,
    compare_with: str | None = None,
    quality_facts: Mapping[str, Any] | None = None,
) -> list[ReportSection]:
    """Details of one run, optionally with another's curve; `quality_facts`: checks of `infuser report quality`."""
    run = report_run.run
    other = [ReportRun(run=compare_with, variant=compare_with, seed=0, leaves={})] if compare_with else []

    def alone(build: Callable[[Query, str], ReportSection]) -> Builder:
        return lambda query, _: build(query, run)

    builders: tuple[Builder, ...] = (
        alone(headline),
        lambda query, runs: training.validation(query, [*runs, *other]),
        alone(selection),
        evaluations.categories,
        *_TRAINING,
        lambda _, __: quality.quality_section(quality_facts),
        lambda query, _: response_format.format_section(response_format.form_of(query, run)),
        alone(corpus.mixture),
        alone(corpus.corpus),
    )
    return filled(query, [report_run], builders)


def runs_report(
    query: Query, runs: Sequence[ReportRun], *, checks: Mapping[str, Path] = MappingProxyType({})
) -> Report:
    """The report of several runs; `checks` are files of `infuser report quality` by run."""
    front: tuple[Builder, ...] = (_runs_section, differences, evaluations.benchmarks, training.validation)
    builders: tuple[Builder, ...] = (
        evaluations.categories,
        sweeps,
        *_TRAINING,
        lambda query, _: quality.strong_weak(query, checks),
    )
    count = len(variants(runs))
    title = f"INFUSER: {len(runs)} runs, {count} variant{'s' * (count != 1)}"
    return Report(title=title, front=filled(query, runs, front), sections=filled(query, runs, builders))


_TRAINING: tuple[Builder, ...] = (
    training.influence,
    training.topics,
    training.textbooks,
    training.frozen,
    training.budget,
    training.validity,
    training.drift,
    training.responses,
    training.length_accuracy,
    evaluations.pass_at_k,
    evaluations.leakage_split,
    training.updates,
    training.durations,
    corpus.coverage,
)
"""Sections on training, in reports of one run and of several."""


def headline(query: Query, run: str) -> ReportSection:
    """Section on the result: benchmark accuracy of the anchor (pre-trained base model) and the selected checkpoint."""
    rows = []
    for row in results(query, run):
        before, after = row["anchor"], row["selected"]
        rows.append(
            {
                "benchmark": text(row["benchmark"]),
                "anchor": before,
                "anchor, 95%": (row["anchor_low"], row["anchor_high"]),
                "selected": after,
                "selected, 95%": (row["low"], row["high"]),
                "gain, points": None if before is None or after is None else after - before,
                **{name: row[name] for name in ("questions", "samples", "unverified")},
            }
        )
    formats: Formats = {"anchor": percent, "selected": percent, "gain, points": points}
    formats = {**formats, "anchor, 95%": interval, "selected, 95%": interval}
    selected = selected_iteration(query, run)
    lines = [] if selected is None else [f"The selected checkpoint is that of iteration {selected}."]
    tables = [table("Accuracy on the benchmarks", rows, formats)] if rows else []
    return ReportSection(title="Benchmarks", lines=lines, tables=tables)


def selection(query: Query, run: str) -> ReportSection:
    """Section on checkpoint selection: candidates, and benchmark questions that the validation set contains."""
    candidates = query(f"""
        SELECT at_iteration AS iteration, accuracy, behind AS "behind the best",
            behind_error AS "standard error, paired", CASE WHEN selected THEN 'chosen' ELSE '' END AS choice
        FROM candidates WHERE run = {literal(run)} ORDER BY at_iteration""")
    if not candidates:
        return ReportSection(title="Checkpoint selection")
    formats: Formats = dict.fromkeys(("accuracy", "behind the best", "standard error, paired"), percent)
    tables = [table("Validated checkpoints", candidates, {**formats, "choice": str})]
    leaks = query(f"""
        SELECT benchmark, num_questions AS questions, num_seen AS "seen in validation", share
        FROM leaks WHERE run = {literal(run)} ORDER BY ALL""")
    if leaks:
        tables.append(table("Benchmark questions that the validation set contains", leaks, {"share": percent}))
    return ReportSection(title="Checkpoint selection", tables=tables)


def _runs_section(_: Query, runs: Sequence[ReportRun]) -> ReportSection:
    rows = [{"run": one.run, "variant": one.variant, "seed": str(one.seed), "anchor": one.anchor} for one in runs]
    note = "Runs of one variant differ only in their seed; figures show variants."
    return ReportSection(title="Runs", lines=[note], tables=[table("", rows)])


def differences(query: Query, runs: Sequence[ReportRun]) -> ReportSection:
    """Section on differences between variants, on every benchmark that both have."""
    return comparison.section(comparison.contrasts(comparison.read_comparison(query, runs)))


def sweeps(query: Query, runs: Sequence[ReportRun]) -> ReportSection:
    """Section on settings that differ: benchmark accuracy against each, mean and range over the runs of a value."""
    title = "Settings that differ"
    leaves = differing(runs)
    if not leaves:
        return ReportSection(title=title)
    rows = query(f"""{runs_sql(runs)},
settings(n, setting, run, value, place) AS (VALUES
    {_values_sql(runs, leaves)}),
{MEASURED}
SELECT setting, value, benchmark, count(*) AS runs, avg(accuracy) AS mean, stddev_samp(accuracy) AS "sd over runs",
    min(accuracy) AS smallest, max(accuracy) AS largest, place, n
FROM measured JOIN settings USING (run) WHERE checkpoint = 'selected' GROUP BY ALL ORDER BY n, benchmark, place""")
    drawings = [
        _against(leaf, mine, [one.leaves.get(leaf) for one in runs], name=f"sweep-{leaves.index(leaf)}")
        for leaf, mine in rows_by(rows, "setting").items()
        if len({row["value"] for row in mine}) > 1
    ]
    lines = [] if rows else ["No final evaluation yet: the charts need one."]
    if len(leaves) > 1:
        lines.append(f"{len(leaves)} settings differ at once: a chart of one of them mixes in the others.")
    tables = [_overview(runs, leaves)]
    if rows:
        formats: Formats = {"mean": percent, "sd over runs": percent}
        tables.append(table("Accuracy by value", rows, formats, without=("smallest", "largest", "place", "n")))
    return ReportSection(title=title, lines=lines, figures=drawings[:MOST_CHARTS], tables=tables)


def _values_sql(runs: Sequence[ReportRun], leaves: Sequence[str]) -> str:
    """SQL rows of setting, run, value and axis position: the number itself, else the order of appearance."""
    rows = []
    for at, leaf in enumerate(leaves):
        values = [one.leaves.get(leaf) for one in runs]
        first = list({repr(one): one for one in values})
        for one, value in zip(runs, values, strict=True):
            place = value if _are_numbers(values) else first.index(repr(value))
            rows.append(f"({at}, {literal(leaf)}, {literal(one.run)}, {literal(short(value))}, {place!r}::DOUBLE)")
    return ",\n    ".join(rows)


def _are_numbers(values: Sequence[Any]) -> bool:
    return all(isinstance(one, int | float) and not isinstance(one, bool) for one in values)


def _against(leaf: str, rows: Sequence[Row], values: Sequence[Any], *, name: str) -> Figure:
    """Chart of accuracy against a setting: lines for numbers, grouped bars for other values."""
    caption = f"Accuracy of the selected checkpoint against {leaf}"
    layers = [spread_series(label, members, x="place") for label, members in rows_by(rows, "benchmark").items()]
    if not _are_numbers(values):
        names = list({repr(one): short(one) for one in values}.values())
        return charts.groups(caption, names, layers, name=name, label="accuracy", share=True, xlabel=leaf)
    places = sorted({float(one) for one in values})
    ticks = places if len(places) <= MOST_TICKS else []
    return charts.lines(caption, layers, name=name, label="accuracy", share=True, xlabel=leaf, ticks=ticks)


def _overview(runs: Sequence[ReportRun], leaves: Sequence[str]) -> ReportTable:
    """Table of the differing settings' values by variant."""
    rows = []
    for leaf in leaves:
        values: dict[str, dict[str, None]] = {}
        for one in runs:
            values.setdefault(one.variant, {})[short(one.leaves.get(leaf, "-"))] = None
        rows.append({"setting": leaf, **{name: ", ".join(each) for name, each in values.items()}})
    return table("Settings by variant", rows)
