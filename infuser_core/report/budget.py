"""How an adaptive budget shared the documents over iterations, and what it went by."""

from collections.abc import Sequence

from infuser_core.report import figures
from infuser_core.report.content import Figure, Query, Section, Table, number, percent, small, text
from infuser_core.report.queries import Chosen, chosen_sql
from infuser_core.report.training import BAND, order, series, spread_sql

TITLE = "Budget of documents"
_SHARE = """    SELECT c.variant, a.arm AS part, a.run, a.iteration, avg(a.share) AS value
    FROM allocations a JOIN chosen c ON c.run = a.run GROUP BY ALL"""


def shares(query: Query, found: Sequence[Chosen]) -> Section:
    """Shares of the batch by arm."""
    rows = order(query(spread_sql(found, _SHARE)), found)
    if not rows:
        said = "Documents had constant shares: `cotrain.budget.mode` bandit makes them follow the influence."
        return Section(title=TITLE, lines=[said])
    drawing = figures.lines(series(rows), name="budget", label="share of documents", share=True)
    figure = Figure(title="Share of the iteration's documents by arm", drawing=drawing)
    return Section(title=TITLE, lines=[BAND], figures=[figure], tables=[_arms(query, found), _steps(query, found)])


def _arms(query: Query, found: Sequence[Chosen]) -> Table:
    rows = order(
        query(f"""{chosen_sql(found)},
titles AS (
    SELECT run, source_id, any_value(title) AS title FROM sources WHERE status = 'admitted' GROUP BY ALL)
SELECT c.variant, a.arm, any_value(t.title) AS title, sum(a.count)::BIGINT AS drawn,
    sum(a.count) / sum(sum(a.count)) OVER (PARTITION BY c.variant) AS share,
    arg_min(a.share, a.iteration) AS first, arg_max(a.share, a.iteration) AS last
FROM allocations a JOIN chosen c ON c.run = a.run
    LEFT JOIN titles t ON t.run = a.run AND t.source_id = a.arm
GROUP BY c.variant, a.arm ORDER BY c.variant, drawn DESC, a.arm"""),
        found,
    )
    cells = [
        [text(row["variant"]), text(row["arm"]), text(row["title"]), number(row["drawn"])]
        + [percent(row[name]) for name in ("share", "first", "last")]
        for row in rows
    ]
    columns = ["variant", "arm", "title", "documents drawn", "share", "share at first", "share at last"]
    return Table(title="Arms over all iterations", columns=columns, rows=cells, text_columns=3)


def _steps(query: Query, found: Sequence[Chosen]) -> Table:
    rows = order(
        query(f"""{chosen_sql(found)}
SELECT c.variant, a.iteration, a.arm, avg(a.count) AS drawn, avg(a.share) AS share, avg(a.pulls) AS pulls,
    avg(a.mean) AS mean, avg(a.bound) AS bound
FROM allocations a JOIN chosen c ON c.run = a.run
GROUP BY c.variant, a.iteration, a.arm ORDER BY c.variant, a.iteration, a.arm"""),
        found,
    )
    cells = [
        [
            *(text(row["variant"]), text(row["arm"]), number(row["iteration"]), number(row["drawn"], 1)),
            *(percent(row["share"]), number(row["pulls"], 1), small(row["mean"]), small(row["bound"])),
        ]
        for row in rows
    ]
    columns = ["variant", "arm", "iteration", "documents", "share", "measured in the window", "mean influence", "bound"]
    title = "Shares and what they follow from, means over seeds"
    return Table(title=title, columns=columns, rows=cells, text_columns=2)
