"""SQL shared by the report sections: runs and settings, common tables, and a value's spread over seeds by iteration."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from infuser_core.evaluation.statistics.tally import Tally, from_counts
from infuser_core.results.report import charts
from infuser_core.results.report.charts import ChartSeries, Figure, series_of
from infuser_core.results.report.content import (
    Formats,
    Query,
    ReportSection,
    ReportTable,
    Row,
    percent,
    small,
    table,
    text,
)


def literal(value: str) -> str:
    """Quote a string as an SQL literal."""
    return "'" + value.replace("'", "''") + "'"


def selected_iteration(query: Query, run: str) -> int | None:
    """Iteration of the selected checkpoint; None before the run has selected."""
    rows = query(f"SELECT selected_iteration FROM selections WHERE run = {literal(run)} ORDER BY ALL LIMIT 1")
    value = rows[0]["selected_iteration"] if rows else None
    return int(value) if isinstance(value, int) else None


NAMING = ("seed", "name", "variant")
"""Settings that name or seed a run and do not change its method."""
ANCHOR = "anchor"
LONGEST = 24
"""Most characters of a setting's value in a label."""
LONGEST_LABEL = 80
"""Most characters of a variant's label."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportRun:
    """A run in a report, with its variant, seed and settings."""

    run: str
    variant: str
    """Name of the method, shared by runs that differ only in their seed."""
    seed: int
    leaves: Mapping[str, Any]
    """Settings by dotted name."""
    anchor: str = ""
    """Model that the run starts from."""


Builder = Callable[[Query, Sequence[ReportRun]], ReportSection]
"""Function that builds a section about these runs."""


def report_runs(configs: Mapping[str, Mapping[str, Any]]) -> list[ReportRun]:
    """Runs from configurations; runs of a variant with different settings become separate variants.

    These are named by the settings that differ, or by their first run if that name would be long.
    """
    runs = [report_run(name, config) for name, config in configs.items()]
    distinct = []
    for run in runs:
        leaves = differing([other for other in runs if other.variant == run.variant])
        label = " ".join([run.variant, *(f"{leaf}={short(run.leaves.get(leaf))}" for leaf in leaves)])
        if len(label) > LONGEST_LABEL:
            same = [other for other in runs if all(other.leaves.get(leaf) == run.leaves.get(leaf) for leaf in leaves)]
            label = next(other.run for other in same if other.variant == run.variant)
        distinct.append(replace(run, variant=label))
    return distinct


def report_run(name: str, config: Mapping[str, Any]) -> ReportRun:
    """Describe a run by its configuration."""
    leaves = flat(config)
    variant = "-".join(part for part in (str(config.get("name", "")), str(config.get("variant") or "")) if part)
    model = leaves.get("anchor.model") or leaves.get("anchor.path") or leaves.get("anchor.type") or ""
    return ReportRun(
        run=name, variant=variant or name, seed=int(config.get("seed", 0)), leaves=leaves, anchor=str(model)
    )


def flat(config: Any, *, within: str = "") -> dict[str, Any]:
    """Flatten nested settings to values by dotted name; an empty mapping or list is a value."""
    if isinstance(config, Mapping) and config:
        items = [(str(key), value) for key, value in config.items()]
    elif isinstance(config, list) and config and any(isinstance(part, Mapping) for part in config):
        items = [(str(at), value) for at, value in enumerate(config)]
    else:
        return {within: config}
    return {
        name: leaf
        for key, value in items
        for name, leaf in flat(value, within=f"{within}.{key}" if within else key).items()
    }


def differing(runs: Sequence[ReportRun]) -> list[str]:
    """Names of settings that differ between runs, in the order of the settings; names and seeds are ignored."""
    names = dict.fromkeys(leaf for one in runs for leaf in one.leaves)
    return [leaf for leaf in names if leaf not in NAMING and len({repr(one.leaves.get(leaf)) for one in runs}) > 1]


def short(value: Any) -> str:
    """Shorten a setting's value for a label."""
    label = f"{value:g}" if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else str(value)
    return label if len(label) <= LONGEST else label[: LONGEST - 1] + "\u2026"


def variants(runs: Sequence[ReportRun]) -> list[str]:
    """Variants in order of appearance."""
    return list(dict.fromkeys(one.variant for one in runs))


MEASURED = """measured AS (
    SELECT c.variant, c.run, c.seed, b.artifact_key, b.benchmark, 'anchor' AS checkpoint, b.accuracy
    FROM benchmark_scores b JOIN chosen c ON c.run = b.run
    WHERE b.phase = 'evaluate' AND b.iteration = 0
    UNION ALL
    SELECT c.variant, c.run, c.seed, b.artifact_key, b.benchmark, 'selected', b.accuracy
    FROM benchmark_scores b JOIN chosen c ON c.run = b.run JOIN selections s ON s.run = b.run
    WHERE b.phase = 'evaluate' AND b.iteration = s.selected_iteration)"""
"""SQL table `measured`: accuracy per run, benchmark and checkpoint; it needs the table `chosen` before it."""


def anchor_sql(runs: Sequence[ReportRun]) -> str:
    """SQL column `variant` that groups anchors: a single `anchor` if all runs start from the same model."""
    same = len({tuple((k, repr(v)) for k, v in one.leaves.items() if k.startswith("anchor.")) for one in runs}) == 1
    anchor = literal(ANCHOR) if same else f"{literal(ANCHOR + ' of ')} || variant"
    return f"CASE WHEN checkpoint = 'anchor' THEN {anchor} ELSE variant END AS variant"


def runs_sql(runs: Sequence[ReportRun]) -> str:
    """SQL that lists the runs as the first table of a statement: `WITH chosen(run, variant, seed) AS (...)`."""
    rows = ",\n    ".join(f"({literal(one.run)}, {literal(one.variant)}, {one.seed})" for one in runs)
    return f"WITH chosen(run, variant, seed) AS (VALUES\n    {rows})"


def by_variant(query: Query, runs: Sequence[ReportRun], sql: str) -> list[Row]:
    """Run a statement that continues after the table `chosen`; rows are sorted by variant in the order of the runs."""
    places = {variant: at for at, variant in enumerate(variants(runs))}
    return sorted(query(runs_sql(runs) + sql), key=lambda row: places[str(row["variant"])])


def tally_of(rows: Sequence[Row]) -> Tally:
    """Tally of one evaluation, from rows with `question_id`, `num_correct` and `num_samples`."""
    return from_counts(
        {str(row["question_id"]): int(row["num_correct"]) for row in rows},
        {str(row["question_id"]): int(row["num_samples"]) for row in rows},
    )


def with_sql(query: Query, runs: Sequence[ReportRun], build: Builder) -> ReportSection:
    """Build a section and attach the SQL statements that it used."""
    statements: dict[str, None] = {}

    def recorded(sql: str) -> list[Row]:
        statements[sql] = None
        return query(sql)

    section = build(recorded, runs)
    return replace(section, sql=list(statements))


def filled(query: Query, runs: Sequence[ReportRun], builders: Sequence[Builder]) -> list[ReportSection]:
    """Build sections about these runs; empty ones are left out."""
    sections = [with_sql(query, runs, build) for build in builders]
    return [one for one in sections if any((one.lines, one.figures, one.tables))]


BAND = "Line: mean over seeds; band: smallest to largest seed."
SPREAD = ("mean", "sd over seeds", "smallest", "largest")


def spread(query: Query, runs: Sequence[ReportRun], per_run: str, extra: Sequence[str] = ()) -> list[Row]:
    """Mean, deviation and range of `value` over a variant's runs, by part and iteration; means of `extra` columns."""
    means = "".join(f', avg("{name}") AS "{name}"' for name in extra)
    sql = f""",
per_run AS (
{per_run}),
finite AS (SELECT * EXCLUDE (value), CASE WHEN isfinite(value) THEN value END AS value FROM per_run)
SELECT variant, part, iteration, count(*) AS runs, avg(value) AS mean, stddev_samp(value) AS "sd over seeds",
    min(value) AS smallest, max(value) AS largest{means}
FROM finite GROUP BY variant, part, iteration ORDER BY variant, part, iteration"""
    return by_variant(query, runs, sql)


def bands(rows: Sequence[Row]) -> list[ChartSeries]:
    """Chart series per variant and part, with a band if some point has several seeds."""
    lines: dict[str, list[Row]] = {}
    for row in rows:
        if row["mean"] is not None:
            lines.setdefault(": ".join(filter(None, (text(row["variant"]), row["part"]))), []).append(row)
    return [spread_series(name, mine) for name, mine in lines.items()]


def spread_series(label: str, rows: Sequence[Row], *, x: str = "iteration") -> ChartSeries:
    """Chart series of means over runs, with a band from smallest to largest run if some point has several."""
    several = any(row["runs"] > 1 for row in rows)
    low, high = ("smallest", "largest") if several else ("", "")
    return series_of(label, rows, "mean", x=x, low=low, high=high)


def spread_table(
    title: str, rows: Sequence[Row], *, share: bool, part: str = "", extra: Formats | None = None
) -> ReportTable:
    """Table of mean, deviation and range per variant and iteration; `part` names the middle column if rows have one."""
    renamed = [{part if name == "part" else name: cell for name, cell in row.items()} for row in rows]
    formats = {**dict.fromkeys(SPREAD, percent if share else small), **(extra or {})}
    return table(title, renamed, formats, without=() if part else ("",))


def band_section(
    query: Query,
    runs: Sequence[ReportRun],
    per_run: str,
    *,
    title: str,
    name: str,
    label: str,
    share: bool = False,
    part: str = "",
    extra: Formats | None = None,
    lines: Sequence[str] = (),
) -> ReportSection:
    """A section on one measure over iterations, with figure and table; the table also has the `extra` columns."""
    rows = spread(query, runs, per_run, tuple(extra or ()))
    if not rows:
        return ReportSection(title=title)
    series = bands(rows)
    caption = f"{title} per iteration. {BAND}" if any(one.low for one in series) else f"{title} per iteration"
    return ReportSection(
        title=title,
        lines=list(lines),
        figures=[charts.lines(caption, series, name=name, label=label, share=share)] if series else [],
        tables=[spread_table(f"{title}, in numbers", rows, share=share, part=part, extra=extra)],
    )


def rows_by(rows: Sequence[Row], name: str) -> dict[str, list[Row]]:
    """Group rows by the text of one column, in order of appearance."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(text(row[name]), []).append(row)
    return groups


def bar_chart(
    title: str, rows: Sequence[Row], by: str, names: Sequence[str], *, y: str = "mean", **axis: Any
) -> Figure:
    """Bars of `y` per variant over the values `names` of `by`; means have whiskers. `axis`: see `charts.groups`."""
    places = {each: at for at, each in enumerate(names)}
    placed = [{**row, "place": places[text(row[by])]} for row in rows if text(row[by]) in places]
    bars = [
        spread_series(variant, mine, x="place") if y == "mean" else series_of(variant, mine, y, x="place")
        for variant, mine in rows_by(placed, "variant").items()
    ]
    return charts.groups(title, names, bars, **axis)
