"""Publication tables: accuracies of runs beside the numbers that the paper prints."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Any, get_args

from infuser_core.errors import UsageError
from infuser_core.report import paper_numbers
from infuser_core.report.charts import value
from infuser_core.report.comparison import tallies
from infuser_core.report.content import Query, text
from infuser_core.report.paper_numbers import Cell, Sheet, row_of
from infuser_core.report.publication import (
    AVERAGE,
    OVERALL,
    RELATIVE,
    Layout,
    Method,
    Style,
    layout,
    method,
    render,
)
from infuser_core.report.queries import MEASURED, Chosen, choose, chosen_sql, variants
from infuser_core.statistics.averages import Number, Spread, exactly
from infuser_core.statistics.bootstrap import estimate
from infuser_core.statistics.tally import Tally, common_questions, mean_shares
from infuser_core.store import runs
from infuser_core.store.store import Store
from infuser_core.store.views import Lens

ANCHOR_COLUMN = "anchor, measured"
STYLES = get_args(Style)


def publish(
    root: Path | None,
    names: Sequence[str],
    *,
    table: str = "",
    anchor: str = "",
    style: Any = "markdown",
    intervals: bool = False,
) -> str:
    """Tables of these runs beside the paper's as text; without runs the paper's alone, all of them unless one is named.

    `anchor` is the paper's model; by default the one that the runs started from, else the table's first. Raises
    UsageError for what does not exist.
    """
    if style not in STYLES:
        raise UsageError(f"no format {style!r}", hint=f"one of {', '.join(STYLES)}")
    if root is None:
        return "\n".join(render(one, style, intervals=intervals) for one in _papers(table, anchor))
    chosen = runs.find_runs(root, names)
    with closing(Lens(Store(root), runs=chosen)) as lens:
        found = choose({name: runs.read_config(root, name) for name in chosen})
        return render(_ours(lens.query, found, table or "main", anchor, intervals), style, intervals=intervals)


def _papers(table: str, anchor: str) -> list[Layout]:
    """The paper's tables, as printed."""
    chosen = [found for found in paper_numbers.sheets(table) if anchor in ("", found.anchor)]
    if not chosen:
        known = ", ".join(dict.fromkeys(f"{found.table} {found.anchor}".strip() for found in paper_numbers.sheets()))
        raise UsageError(f"the paper has no table {table!r} {anchor}".rstrip(), hint=f"tables: {known}")
    return [printed_layout(found) for found in chosen]


def printed_layout(found: Sheet) -> Layout:
    """A table of the paper, every column marked as reported; none is better than another where it has no accuracies."""
    title = f"{found.table} table, {found.anchor}".rstrip(", ")
    if found in paper_numbers.accuracy_sheets():
        return layout(title, reported(found), found.categories())
    digits = max(cell.digits for cell in found.cells)
    return Layout(title=title, methods=tuple(reported(found, str)), rows=found.rows, digits=digits, ranked=False)


def _heading(row: str) -> str:
    """A row of a table of accuracies under our headings."""
    if row in paper_numbers.OVERALL:
        return AVERAGE + OVERALL
    return row.replace(paper_numbers.AVERAGE, AVERAGE).replace(paper_numbers.RELATIVE, RELATIVE)


def reported(found: Sheet, heading: Callable[[str], str] = _heading) -> list[Method]:
    """The columns of a table as they are printed."""
    return [
        Method(
            name=name,
            scores={heading(cell.row): _printed(cell) for cell in found.cells if cell.column == name},
            reported=True,
        )
        for name in found.columns
    ]


def _printed(cell: Cell) -> Spread:
    # A printed deviation is over three seeds; a cell without one is a single run.
    sd = None if cell.deviation is None else float(cell.deviation)
    return Spread(mean=Fraction(cell.value), sd=sd, seeds=1 if sd is None else 3)


def _ours(query: Query, found: Sequence[Chosen], table: str, anchor: str, intervals: bool) -> Layout:
    scores = measured(query, found)
    if not any(scores.values()):
        raise UsageError("no final evaluation in these runs", hint="`infuser resume` finishes a run")
    return beside_paper(
        scores,
        anchor=anchor or anchor_of(table, found),
        table=table,
        base=ANCHOR_COLUMN if scores.get(ANCHOR_COLUMN) else "",
        intervals=question_intervals(query, found) if intervals else None,
    )


def beside_paper(
    ours: Mapping[str, Mapping[str, Sequence[Number]]],
    *,
    anchor: str,
    table: str = "main",
    base: str = "",
    intervals: Mapping[str, Mapping[str, tuple[float, float]]] | None = None,
) -> Layout:
    """Our results beside the paper's table for the same anchor model, its numbers marked as reported.

    `ours` maps a method to percentages per seed by benchmark (module name or the paper's heading); `base` is the method
    that relative improvements are over. `intervals` hold percentages by method and benchmark. Benchmarks that the paper
    does not have stand in rows of their own. Raises UsageError for a table or anchor that does not exist.
    """
    found = _sheet(table, anchor)
    categories = found.categories()
    known = [row for names in categories.values() for row in names]
    named = {name: {row_of(row, known): values for row, values in scores.items()} for name, scores in ours.items()}
    own = [
        method(
            name,
            scores,
            categories,
            base=named[base] if base and name != base else None,
            intervals={row_of(row, known): pair for row, pair in (intervals or {}).get(name, {}).items()},
        )
        for name, scores in named.items()
    ]
    title = f"{table} table, {anchor}: measured here, and {len(found.columns)} columns as the paper reports them"
    return layout(title, [*own, *reported(found)], categories)


def _sheet(table: str, anchor: str) -> Sheet:
    known = paper_numbers.accuracy_sheets()
    sheets = [found for found in known if found.table == table]
    chosen = next((found for found in sheets if found.anchor == anchor), None)
    if chosen is None:
        places = ", ".join(f"{found.table} {found.anchor}" for found in (sheets or known))
        raise UsageError(f"the paper has no table {table!r} for {anchor!r}", hint=f"tables and anchors: {places}")
    return chosen


def anchor_of(table: str, found: Sequence[Chosen]) -> str:
    """The table's anchor that the runs started from, by its name; the table's first where there is none."""
    anchors = [one.anchor for one in paper_numbers.accuracy_sheets() if one.table == table]
    same = [name for name in anchors if any(name.lower() in one.anchor.lower() for one in found)]
    return (same or anchors or [""])[0]


def measured(query: Query, found: Sequence[Chosen]) -> dict[str, dict[str, list[Any]]]:
    """Percentages per seed by column and benchmark: the anchor, then each variant's selected checkpoint.

    Seeds stand in the same order in every row. The anchor is the same model for every seed: where its runs agree it is
    one number, else one per run.
    """
    rows = query(f"""{chosen_sql(found)},
{MEASURED}
SELECT DISTINCT CASE WHEN checkpoint = 'anchor' THEN '' ELSE variant END AS variant, seed, artifact_key, benchmark,
    checkpoint, accuracy
FROM measured ORDER BY benchmark, seed, artifact_key""")
    columns: dict[str, dict[str, list[Any]]] = {ANCHOR_COLUMN: {}, **{name: {} for name in variants(found)}}
    for row in rows:
        name = ANCHOR_COLUMN if row["checkpoint"] == "anchor" else str(row["variant"])
        percentages = columns[name].setdefault(text(row["benchmark"]), [])
        percentages.append(100 * exactly(value(row["accuracy"])))
    anchor = columns[ANCHOR_COLUMN]
    if all(len(set(values)) == 1 for values in anchor.values()):
        columns[ANCHOR_COLUMN] = {benchmark: values[:1] for benchmark, values in anchor.items()}
    return {name: held for name, held in columns.items() if held}


def question_intervals(query: Query, found: Sequence[Chosen]) -> dict[str, Mapping[str, tuple[float, float]]]:
    """95% bootstrap intervals over questions, percent, of the selected checkpoints; seeds averaged per question."""
    counts = tallies(query, found)
    held: dict[str, dict[str, list[Tally]]] = {name: {} for name in variants(found)}
    for one in found:
        for (phase, benchmark), tally in counts[one.run].items():
            if phase == "evaluate":
                held[one.variant].setdefault(benchmark, []).append(tally)
    return {name: {label: _interval(seeds) for label, seeds in own.items()} for name, own in held.items()}


def _interval(seeds: Sequence[Tally]) -> tuple[float, float]:
    found = estimate(mean_shares(seeds, common_questions(seeds)[0]))
    return 100 * found.low, 100 * found.high
