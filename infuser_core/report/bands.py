"""One measure over iterations and seeds: mean line, band from the smallest to the largest seed, and its table."""

from collections.abc import Sequence

from infuser_core.report import charts
from infuser_core.report.content import Formats, Query, Row, Section, Table, percent, small, table, text
from infuser_core.report.figures import Series, series_of
from infuser_core.report.queries import Chosen, by_variant

BAND = "Line: mean over seeds; band: smallest to largest seed."
SPREAD = ("mean", "sd over seeds", "smallest", "largest")


def spread(query: Query, found: Sequence[Chosen], per_run: str, beside: Sequence[str] = ()) -> list[Row]:
    """Mean, sample deviation and ends over the runs of a variant of `value` per `variant, part, iteration`.

    `per_run` is a SELECT over `chosen` and the views with these columns, one row per run; of its columns `beside` the
    mean alone is taken.
    """
    means = "".join(f', avg("{name}") AS "{name}"' for name in beside)
    return by_variant(
        query,
        found,
        f""",
per_run AS (
{per_run}),
finite AS (SELECT * EXCLUDE (value), CASE WHEN isfinite(value) THEN value END AS value FROM per_run)
SELECT variant, part, iteration, count(*) AS runs, avg(value) AS mean, stddev_samp(value) AS "sd over seeds",
    min(value) AS smallest, max(value) AS largest{means}
FROM finite GROUP BY variant, part, iteration ORDER BY variant, part, iteration""",
    )


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
    missing: str,
    share: bool = False,
    part: str = "",
    beside: Formats | None = None,
    lines: Sequence[str] = (),
) -> Section:
    """A whole section of one measure, its table with the columns `beside` it; `missing` says what would fill it."""
    rows = spread(query, found, per_run, tuple(beside or ()))
    if not rows:
        return Section(title=title, lines=[missing])
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
