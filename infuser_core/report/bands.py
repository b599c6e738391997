"""One measure over iterations and seeds: mean line, band from the smallest to the largest seed, and its table."""

from collections.abc import Callable, Sequence

from infuser_core.report import figures
from infuser_core.report.chosen import Chosen, chosen_sql
from infuser_core.report.content import Figure, Query, Section, Table, number, percent, small, text
from infuser_core.report.figures import Series
from infuser_core.report.tables import Row

Show = Callable[[object], str]
BAND = "Line: mean over seeds; band: smallest to largest seed."


def spread_sql(found: Sequence[Chosen], per_run: str) -> str:
    """Mean, sample deviation and ends over the runs of a variant of `value` per `variant, iteration, part`.

    `per_run` is a SELECT over `chosen` and the views with these three columns, one row per run.
    """
    return f"""{chosen_sql(found)},
per_run AS (
{per_run})
SELECT variant, part, iteration, count(*) AS runs, avg(value) AS mean, stddev_samp(value) AS sd,
    min(value) AS low, max(value) AS high
FROM per_run WHERE isfinite(value) GROUP BY variant, part, iteration ORDER BY variant, part, iteration"""


def order(rows: Sequence[Row], found: Sequence[Chosen]) -> list[Row]:
    """Rows with variants in the order in which the runs were named."""
    places = {variant: at for at, variant in enumerate(dict.fromkeys(one.variant for one in found))}
    return sorted(rows, key=lambda row: places[str(row["variant"])])


def series(rows: Sequence[Row], *, bands: bool = True) -> list[Series]:
    """One line per variant and part, with a band where some point has several seeds."""
    lines: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        lines.setdefault((text(row["variant"]), str(row["part"] or "")), []).append(row)
    return [
        Series(
            label=": ".join(filter(None, name)),
            x=column(mine, "iteration"),
            y=column(mine, "mean"),
            low=column(mine, "low") if bands and _several(mine) else (),
            high=column(mine, "high") if bands and _several(mine) else (),
        )
        for name, mine in lines.items()
    ]


def _several(rows: Sequence[Row]) -> bool:
    return any(isinstance(row["runs"], int) and row["runs"] > 1 for row in rows)


def column(rows: Sequence[Row], name: str) -> list[float]:
    """Numbers of one column."""
    # Sums over threads differ in the last bits; charts must not.
    return [round(value(row[name]), 9) for row in rows]


def value(found: object) -> float:
    """A number, 0 where there is none."""
    return float(found) if isinstance(found, int | float) else 0.0


def spread_table(
    rows: Sequence[Row], *, title: str, show: Show, place: str = "iteration", part: str = "", at: Show = number
) -> Table:
    """Mean, deviation and ends per variant and place; `part` names the middle column where rows have one."""
    columns = ["variant", *([part] if part else []), place, "runs", "mean", "sd over seeds", "smallest", "largest"]
    cells = [
        [text(row["variant"]), *([text(row["part"])] if part else []), at(row["iteration"]), number(row["runs"])]
        + [show(row[name]) for name in ("mean", "sd", "low", "high")]
        for row in rows
    ]
    return Table(title=title, columns=columns, rows=cells, text_columns=2 if part else 1)


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
    lines: Sequence[str] = (),
) -> Section:
    """A whole section of one measure; `missing` says what would fill it."""
    rows = order(query(spread_sql(found, per_run)), found)
    if not rows:
        return Section(title=title, lines=[missing])
    drawn = series(rows)
    caption = f"{title} per iteration. {BAND}" if any(one.low for one in drawn) else f"{title} per iteration"
    figure = Figure(title=caption, drawing=figures.lines(drawn, name=name, label=label, share=share))
    shown = percent if share else small
    return Section(
        title=title,
        lines=list(lines),
        figures=[figure],
        tables=[spread_table(rows, title=f"{title}, in numbers", show=shown, part=part)],
    )
