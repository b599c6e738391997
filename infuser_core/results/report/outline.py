"""Outlines of report pages: the sections of one run, and of several runs by variant."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from infuser_core.results.lineage.outcome import results
from infuser_core.results.report import charts, comparison, corpus, evaluations, habits, quality, training
from infuser_core.results.report.charts import Figure
from infuser_core.results.report.content import (
    Formats,
    Query,
    Report,
    Row,
    Section,
    Table,
    interval,
    percent,
    points,
    table,
    text,
)
from infuser_core.results.report.queries import (
    MEASURED,
    Builder,
    Chosen,
    chosen_sql,
    differing,
    grouped,
    literal,
    selected_iteration,
    short,
    spread_series,
    variants,
    with_sql,
)

MOST_CHARTS, MOST_TICKS = 6, 8
"""Settings with a chart of their own (the table has all), and values with a mark of their own on its axis."""


def of_run(
    query: Query,
    chosen: Chosen,
    *,
    compare_with: str | None = None,
    notes: Sequence[str] = (),
    checked: Mapping[str, Any] | None = None,
) -> Report:
    """The report of one run, beside another's curve; `checked` is what `infuser report quality` found."""
    run = chosen.run
    other = [Chosen(run=compare_with, variant=compare_with, seed=0, leaves={})] if compare_with else []

    def alone(build: Callable[[Query, str], Section]) -> Builder:
        return lambda asked, _: build(asked, run)

    builders: tuple[Builder, ...] = (
        alone(headline),
        lambda _, __: Section(title="Notes", lines=[text(note) for note in notes]),
        lambda asked, runs: training.validation(asked, [*runs, *other]),
        alone(selection),
        evaluations.categories,
        *_TRAINING,
        lambda _, __: quality.quality(checked),
        lambda asked, _: habits.section(habits.form_of(asked, run)),
        alone(corpus.mixture),
        alone(corpus.corpus),
    )
    return Report(title=f"INFUSER run {text(run)}", sections=_filled(query, [chosen], builders))


def _filled(query: Query, found: Sequence[Chosen], builders: Sequence[Builder]) -> list[Section]:
    """The sections that these runs have something for."""
    sections = [with_sql(query, found, build) for build in builders]
    return [one for one in sections if any((one.lines, one.figures, one.tables))]


def of_runs(query: Query, found: Sequence[Chosen], *, checks: Mapping[str, Path] = MappingProxyType({})) -> Report:
    """One page for several runs; `checks` are files of `infuser report quality` by run."""
    builders: tuple[Builder, ...] = (
        lambda _, runs: _runs(runs),
        training.validation,
        evaluations.benchmarks,
        differences,
        evaluations.categories,
        sweeps,
        *_TRAINING,
        lambda asked, _: quality.strong_weak(asked, checks),
    )
    count = len(variants(found))
    title = f"INFUSER: {len(found)} runs, {count} variant{'s' * (count != 1)}"
    return Report(title=title, sections=_filled(query, found, builders))


_TRAINING: tuple[Builder, ...] = (
    training.influence,
    training.topics,
    training.textbooks,
    training.frozen,
    training.budget,
    training.validity,
    training.responses,
    training.length_accuracy,
    evaluations.pass_at_k,
    evaluations.leakage_split,
    training.updates,
    training.durations,
    corpus.coverage,
)
"""Sections by variant, of one run or of several: the questions, the updates and what they cost."""


def headline(query: Query, run: str) -> Section:
    """Anchor against selected checkpoint, per benchmark."""
    rows = [_gain(row) for row in results(query, run)]
    formats: Formats = {"anchor": percent, "selected": percent, "gain, points": points}
    formats = {**formats, "anchor, 95%": interval, "selected, 95%": interval}
    chosen = selected_iteration(query, run)
    said = [] if chosen is None else [f"The selected checkpoint is that of iteration {chosen}."]
    tables = [table("Accuracy on the benchmarks", rows, formats)] if rows else []
    return Section(title="Result", lines=said, tables=tables)


def _gain(row: Row) -> Row:
    before, after = row["anchor"], row["selected"]
    return {
        "benchmark": text(row["benchmark"]),
        "anchor": before,
        "anchor, 95%": (row["anchor_low"], row["anchor_high"]),
        "selected": after,
        "selected, 95%": (row["low"], row["high"]),
        "gain, points": None if before is None or after is None else after - before,
        **{name: row[name] for name in ("questions", "samples", "unverified")},
    }


def selection(query: Query, run: str) -> Section:
    """Certainty of the choice of the checkpoint, and what the validation set has seen of the benchmarks."""
    validated = query(f"""
        SELECT at_iteration AS iteration, accuracy, behind AS "behind the best",
            behind_error AS "standard error, paired", CASE WHEN selected THEN 'chosen' ELSE '' END AS choice
        FROM candidates WHERE run = {literal(run)} ORDER BY at_iteration""")
    if not validated:
        return Section(title="Checkpoint selection")
    formats: Formats = dict.fromkeys(("accuracy", "behind the best", "standard error, paired"), percent)
    tables = [table("Validated checkpoints", validated, {**formats, "choice": str})]
    seen = query(f"""
        SELECT benchmark, num_questions AS questions, num_seen AS "seen in validation", share
        FROM leaks WHERE run = {literal(run)} ORDER BY ALL""")
    if seen:
        tables.append(table("Benchmark questions that the validation set contains", seen, {"share": percent}))
    return Section(title="Checkpoint selection", tables=tables)


def _runs(found: Sequence[Chosen]) -> Section:
    rows = [{"run": one.run, "variant": one.variant, "seed": str(one.seed), "anchor": one.anchor} for one in found]
    said = "Runs of one variant differ in their seed alone; figures show variants."
    return Section(title="Runs", lines=[said], tables=[table("", rows)])


def differences(query: Query, found: Sequence[Chosen]) -> Section:
    """Variant against variant, on every benchmark that both have."""
    return comparison.section(comparison.contrasts(comparison.read(query, found)))


def sweeps(query: Query, found: Sequence[Chosen]) -> Section:
    """Accuracy on the benchmarks against every setting that differs, mean and ends over the runs of a value."""
    title = "Settings that differ"
    leaves = differing(found)
    if not leaves:
        return Section(title=title)
    rows = query(f"""{chosen_sql(found)},
settings(n, setting, run, value, place) AS (VALUES
    {_values_sql(found, leaves)}),
{MEASURED}
SELECT setting, value, benchmark, count(*) AS runs, avg(accuracy) AS mean, stddev_samp(accuracy) AS "sd over runs",
    min(accuracy) AS smallest, max(accuracy) AS largest, place, n
FROM measured JOIN settings USING (run) WHERE checkpoint = 'selected' GROUP BY ALL ORDER BY n, benchmark, place""")
    drawings = [
        _against(leaf, mine, [one.leaves.get(leaf) for one in found], name=f"sweep-{leaves.index(leaf)}")
        for leaf, mine in grouped(rows, "setting").items()
        if len({row["value"] for row in mine}) > 1
    ]
    lines = [] if rows else ["No final evaluation yet: the charts need one."]
    if len(leaves) > 1:
        lines.append(f"{len(leaves)} settings differ at once: a chart of one of them mixes in the others.")
    tables = [_overview(found, leaves)]
    if rows:
        formats: Formats = {"mean": percent, "sd over runs": percent}
        tables.append(table("Accuracy by value", rows, formats, without=("smallest", "largest", "place", "n")))
    return Section(title=title, lines=lines, figures=drawings[:MOST_CHARTS], tables=tables)


def _values_sql(found: Sequence[Chosen], leaves: Sequence[str]) -> str:
    """Per setting and run its value, and the place of the value: a number's own, else that of its first appearance."""
    rows = []
    for at, leaf in enumerate(leaves):
        held = [one.leaves.get(leaf) for one in found]
        first = list({repr(one): one for one in held})
        for one, value in zip(found, held, strict=True):
            place = value if _are_numbers(held) else first.index(repr(value))
            rows.append(f"({at}, {literal(leaf)}, {literal(one.run)}, {literal(short(value))}, {place!r}::DOUBLE)")
    return ",\n    ".join(rows)


def _are_numbers(values: Sequence[Any]) -> bool:
    return all(isinstance(one, int | float) and not isinstance(one, bool) for one in values)


def _against(leaf: str, rows: Sequence[Row], values: Sequence[Any], *, name: str) -> Figure:
    """Lines over numbers, groups of bars over anything else."""
    caption = f"Accuracy of the selected checkpoint against {leaf}"
    layers = [spread_series(label, held, x="place") for label, held in grouped(rows, "benchmark").items()]
    if not _are_numbers(values):
        names = list({repr(one): short(one) for one in values}.values())
        return charts.groups(caption, names, layers, name=name, label="accuracy", share=True, xlabel=leaf)
    places = sorted({float(one) for one in values})
    ticks = places if len(places) <= MOST_TICKS else []
    return charts.lines(caption, layers, name=name, label="accuracy", share=True, xlabel=leaf, ticks=ticks)


def _overview(found: Sequence[Chosen], leaves: Sequence[str]) -> Table:
    """Values by variant."""
    rows = []
    for leaf in leaves:
        held: dict[str, dict[str, None]] = {}
        for one in found:
            held.setdefault(one.variant, {})[short(one.leaves.get(leaf, "-"))] = None
        rows.append({"setting": leaf, **{name: ", ".join(values) for name, values in held.items()}})
    return table("Settings by variant", rows)
