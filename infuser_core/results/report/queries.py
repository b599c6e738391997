"""SQL of the reports: runs and settings, tables that sections begin with, and one measure over iterations and seeds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from infuser_core.evaluation.statistics.tally import Tally, from_counts
from infuser_core.results.report import charts
from infuser_core.results.report.charts import Figure, Series, series_of
from infuser_core.results.report.content import Formats, Query, Row, Section, Table, percent, small, table, text


def literal(value: str) -> str:
    """A string as an SQL literal."""
    return "'" + value.replace("'", "''") + "'"


def selected_iteration(query: Query, run: str) -> int | None:
    """Iteration that the selection chose; None before the run has selected."""
    rows = query(f"SELECT selected_iteration FROM selections WHERE run = {literal(run)} ORDER BY ALL LIMIT 1")
    value = rows[0]["selected_iteration"] if rows else None
    return int(value) if isinstance(value, int) else None


NAMING = ("seed", "name", "variant")
"""Leaves that name a run and set nothing but its chance."""
ANCHOR = "anchor"
LONGEST = 24
"""Characters of a setting's value inside a label."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """One run of a report."""

    run: str
    """Name."""
    variant: str
    """Name that it shares with its other seeds."""
    seed: int
    """Run seed."""
    leaves: Mapping[str, Any]
    """Settings by dotted name."""
    anchor: str = ""
    """Model that it started from."""


Builder = Callable[[Query, Sequence[Chosen]], Section]
"""Makes a section of these runs."""


def choose(configs: Mapping[str, Mapping[str, Any]]) -> tuple[Chosen, ...]:
    """The runs by name; runs of one variant whose settings differ become variants of their own, named by these."""
    found = tuple(chosen_run(name, config) for name, config in configs.items())
    return tuple(replace(one, variant=_told_apart(one, found)) for one in found)


def chosen_run(name: str, config: Mapping[str, Any]) -> Chosen:
    """A run by its configuration."""
    leaves = flat(config)
    variant = "-".join(part for part in (str(config.get("name", "")), str(config.get("variant") or "")) if part)
    model = leaves.get("anchor.model") or leaves.get("anchor.path") or leaves.get("anchor.type") or ""
    return Chosen(run=name, variant=variant or name, seed=int(config.get("seed", 0)), leaves=leaves, anchor=str(model))


def _told_apart(one: Chosen, found: Sequence[Chosen]) -> str:
    alike = [other for other in found if other.variant == one.variant]
    parts = [f"{leaf}={short(one.leaves.get(leaf))}" for leaf in differing(alike)]
    return " ".join([one.variant, *parts])


def flat(config: Any, *, within: str = "") -> dict[str, Any]:
    """Leaves of nested settings by dotted name; an empty mapping or list is a leaf."""
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


def differing(found: Sequence[Chosen]) -> list[str]:
    """Leaves that are not the same in all runs, in the order of the settings; names and seeds aside."""
    names = dict.fromkeys(leaf for one in found for leaf in one.leaves)
    return [leaf for leaf in names if leaf not in NAMING and len({repr(one.leaves.get(leaf)) for one in found}) > 1]


def short(value: Any) -> str:
    """A setting's value as part of a label."""
    shown = f"{value:g}" if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else str(value)
    return shown if len(shown) <= LONGEST else shown[: LONGEST - 1] + "\u2026"


def variants(found: Sequence[Chosen]) -> list[str]:
    """Variants in order of appearance."""
    return list(dict.fromkeys(one.variant for one in found))


MEASURED = """measured AS (
    SELECT c.variant, c.run, c.seed, b.artifact_key, b.benchmark, 'anchor' AS checkpoint, b.accuracy
    FROM benchmark_scores b JOIN chosen c ON c.run = b.run
    WHERE b.phase = 'evaluate' AND b.iteration = 0
    UNION ALL
    SELECT c.variant, c.run, c.seed, b.artifact_key, b.benchmark, 'selected', b.accuracy
    FROM benchmark_scores b JOIN chosen c ON c.run = b.run JOIN selections s ON s.run = b.run
    WHERE b.phase = 'evaluate' AND b.iteration = s.selected_iteration)"""
"""Accuracy per run, benchmark and checkpoint; `chosen` comes before it."""


def anchor_sql(found: Sequence[Chosen]) -> str:
    """`variant` for SQL where anchors have a bar of their own: one where all runs started from the same model."""
    same = len({tuple((k, repr(v)) for k, v in one.leaves.items() if k.startswith("anchor.")) for one in found}) == 1
    anchor = literal(ANCHOR) if same else f"{literal(ANCHOR + ' of ')} || variant"
    return f"CASE WHEN checkpoint = 'anchor' THEN {anchor} ELSE variant END AS variant"


def chosen_sql(found: Sequence[Chosen]) -> str:
    """The runs as the first table of a statement: `WITH chosen(run, variant, seed) AS (...)`."""
    rows = ",\n    ".join(f"({literal(one.run)}, {literal(one.variant)}, {one.seed})" for one in found)
    return f"WITH chosen(run, variant, seed) AS (VALUES\n    {rows})"


def by_variant(query: Query, found: Sequence[Chosen], sql: str) -> list[Row]:
    """Rows of a statement that begins after `chosen`, variants in the order in which the runs were named."""
    places = {variant: at for at, variant in enumerate(variants(found))}
    return sorted(query(chosen_sql(found) + sql), key=lambda row: places[str(row["variant"])])


def tally_of(rows: Sequence[Row]) -> Tally:
    """Counts of the questions of one evaluation, from rows with `question_id`, `num_correct` and `num_samples`."""
    return from_counts(
        {str(row["question_id"]): int(row["num_correct"]) for row in rows},
        {str(row["question_id"]): int(row["num_samples"]) for row in rows},
    )


def with_sql(query: Query, found: Sequence[Chosen], build: Builder) -> Section:
    """A section of these runs with the statements that it was made from."""
    statements: dict[str, None] = {}

    def recorded(sql: str) -> list[Row]:
        statements[sql] = None
        return query(sql)

    section = build(recorded, found)
    return replace(section, sql=list(statements))


BAND = "Line: mean over seeds; band: smallest to largest seed."
SPREAD = ("mean", "sd over seeds", "smallest", "largest")


def spread(query: Query, found: Sequence[Chosen], per_run: str, beside: Sequence[str] = ()) -> list[Row]:
    """Mean, deviation and ends of `value` over a variant's runs, by part and iteration; of `beside` the mean alone."""
    means = "".join(f', avg("{name}") AS "{name}"' for name in beside)
    sql = f""",
per_run AS (
{per_run}),
finite AS (SELECT * EXCLUDE (value), CASE WHEN isfinite(value) THEN value END AS value FROM per_run)
SELECT variant, part, iteration, count(*) AS runs, avg(value) AS mean, stddev_samp(value) AS "sd over seeds",
    min(value) AS smallest, max(value) AS largest{means}
FROM finite GROUP BY variant, part, iteration ORDER BY variant, part, iteration"""
    return by_variant(query, found, sql)


def bands(rows: Sequence[Row]) -> list[Series]:
    """One line per variant and part, with a band where some point has several seeds."""
    lines: dict[str, list[Row]] = {}
    for row in rows:
        if row["mean"] is not None:
            lines.setdefault(": ".join(filter(None, (text(row["variant"]), row["part"]))), []).append(row)
    return [spread_series(name, mine) for name, mine in lines.items()]


def spread_series(label: str, rows: Sequence[Row], *, x: str = "iteration") -> Series:
    """Means over runs, with the smallest and the largest run where some place has several."""
    several = any(row["runs"] > 1 for row in rows)
    low, high = ("smallest", "largest") if several else ("", "")
    return series_of(label, rows, "mean", x=x, low=low, high=high)


def spread_table(
    title: str, rows: Sequence[Row], *, share: bool, part: str = "", beside: Formats | None = None
) -> Table:
    """Mean, deviation and ends per variant and iteration; `part` names the middle column where rows have one."""
    named = [{part if name == "part" else name: cell for name, cell in row.items()} for row in rows]
    formats = {**dict.fromkeys(SPREAD, percent if share else small), **(beside or {})}
    return table(title, named, formats, without=() if part else ("",))


def band_section(
    query: Query,
    found: Sequence[Chosen],
    per_run: str,
    *,
    title: str,
    name: str,
    label: str,
    share: bool = False,
    part: str = "",
    beside: Formats | None = None,
    lines: Sequence[str] = (),
) -> Section:
    """A whole section of one measure, its table with the columns `beside` it."""
    rows = spread(query, found, per_run, tuple(beside or ()))
    if not rows:
        return Section(title=title)
    drawn = bands(rows)
    caption = f"{title} per iteration. {BAND}" if any(one.low for one in drawn) else f"{title} per iteration"
    return Section(
        title=title,
        lines=list(lines),
        figures=[charts.lines(caption, drawn, name=name, label=label, share=share)] if drawn else [],
        tables=[spread_table(f"{title}, in numbers", rows, share=share, part=part, beside=beside)],
    )


def grouped(rows: Sequence[Row], name: str) -> dict[str, list[Row]]:
    """Rows by the text of one column, in order of appearance."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(text(row[name]), []).append(row)
    return found


def bar_chart(
    title: str, rows: Sequence[Row], by: str, names: Sequence[str], *, y: str = "mean", **axis: Any
) -> Figure:
    """Bars of `y` for each variant over these names of one column; means have whiskers. `axis`: see `charts.groups`."""
    places = {each: at for at, each in enumerate(names)}
    placed = [{**row, "place": places[text(row[by])]} for row in rows if text(row[by]) in places]
    bars = [
        spread_series(variant, mine, x="place") if y == "mean" else series_of(variant, mine, y, x="place")
        for variant, mine in grouped(placed, "variant").items()
    ]
    return charts.groups(title, names, bars, **axis)
