"""Publication tables: accuracies of runs beside the numbers that the paper prints."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, get_args

import numpy as np

from infuser_core.errors import UsageError
from infuser_core.report import paper_numbers
from infuser_core.report.charts import value
from infuser_core.report.comparison import tallies
from infuser_core.report.content import Query, text
from infuser_core.report.paper_numbers import Cell, Sheet, row_of
from infuser_core.report.publication import (
    Layout,
    Line,
    Method,
    Score,
    Style,
    average_row,
    layout,
    method,
    relative_row,
    render,
)
from infuser_core.report.queries import MEASURED, Chosen, chosen_sql, variants
from infuser_core.statistics.averages import Number, exactly
from infuser_core.statistics.bootstrap import estimate
from infuser_core.statistics.tally import shares

OVERALL = "Overall"


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
    does not have stand in rows of their own. Raises UsageError for a table, anchor or base that does not exist.
    """
    found = _sheet(table, anchor)
    if base and base not in ours:
        raise UsageError(f"no results of {base}", hint=f"methods: {', '.join(ours) or 'none'}")
    categories = found.categories()
    known = [row for names in categories.values() for row in names]
    named = {name: {row_of(row, known): values for row, values in scores.items()} for name, scores in ours.items()}
    ends = {name: {row_of(row, known): pair for row, pair in own.items()} for name, own in (intervals or {}).items()}
    own = [
        method(
            name,
            scores,
            categories,
            overall=OVERALL,
            base=named[base] if base and name != base else None,
            intervals=ends.get(name),
        )
        for name, scores in named.items()
    ]
    title = f"{table} table, {anchor}: measured here, and {len(found.columns)} columns as the paper reports them"
    return layout(title, [*own, *(reported(found, name) for name in found.columns)], categories, overall=OVERALL)


def reported(found: Sheet, name: str) -> Method:
    """A column of the paper as it is printed."""
    scores = {_label(cell.row): _printed(cell) for cell in found.cells if cell.column == name}
    return Method(name=name, scores=scores, reported=True)


def _label(row: str) -> str:
    """A row of the paper under our headings."""
    if row.startswith(paper_numbers.AVERAGE):
        return average_row(row.removeprefix(paper_numbers.AVERAGE))
    if row.startswith(paper_numbers.RELATIVE):
        return relative_row(row.removeprefix(paper_numbers.RELATIVE))
    return average_row(OVERALL) if row in paper_numbers.OVERALL else row


def _printed(cell: Cell) -> Score:
    # A printed deviation is over three seeds; a cell without one is a single run.
    sd = None if cell.deviation is None else float(cell.deviation)
    return Score(mean=Fraction(cell.value), sd=sd, seeds=1 if sd is None else 3)


def _sheet(table: str, anchor: str) -> Sheet:
    sheets = [found for found in paper_numbers.accuracy_sheets() if found.table == table]
    chosen = next((found for found in sheets if found.anchor == anchor), None)
    if chosen is None:
        places = ", ".join(f"{found.table} {found.anchor}" for found in (sheets or paper_numbers.accuracy_sheets()))
        raise UsageError(f"the paper has no table {table!r} for {anchor!r}", hint=f"tables and anchors: {places}")
    return chosen


def accuracy_layout(table: str, anchor: str) -> Layout:
    """The paper's own table of accuracies, every column marked as reported."""
    found = _sheet(table, anchor)
    columns = [reported(found, name) for name in found.columns]
    return layout(f"{table} table, {anchor}", columns, found.categories(), overall=OVERALL)


def printed_layout(found: Sheet) -> Layout:
    """A table of the paper that is none of accuracies by benchmark: its cells as printed, none better than another."""
    columns = [
        Method(
            name=name, reported=True, scores={cell.row: _printed(cell) for cell in found.cells if cell.column == name}
        )
        for name in found.columns
    ]
    lines = [
        Line(label=row, scores=tuple(one.scores.get(row) for one in columns), best=frozenset(), summary=False)
        for row in found.rows
    ]
    digits = max(cell.digits for cell in found.cells)
    title = f"{found.table} table, {found.anchor}".rstrip(", ")
    return Layout(title=title, methods=tuple(columns), lines=tuple(lines), digits=digits)


ANCHOR_COLUMN = "anchor, measured"
STYLES = get_args(Style)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Options of a table."""

    table: str = ""
    """Table of the paper; empty for main with runs, for all without."""
    anchor: str = ""
    """The paper's anchor model; empty for the one that the runs started from, else the table's first."""
    style: str = "markdown"
    """markdown, latex or csv."""
    intervals: bool = False
    """Whether 95% intervals over questions are shown."""


def published(query: Query | None, found: Sequence[Chosen], wanted: Wanted) -> str:
    """The tables as text; without runs the paper's own. Raises UsageError for what does not exist."""
    if wanted.style not in STYLES:
        raise UsageError(f"no format {wanted.style!r}", hint=f"one of {', '.join(STYLES)}")
    layouts = [_ours(query, found, wanted)] if query is not None and found else _papers(wanted)
    style: Any = wanted.style
    return "\n".join(render(one, style, intervals=wanted.intervals) for one in layouts)


def _papers(wanted: Wanted) -> list[Layout]:
    """The paper's tables, as printed."""
    sheets = paper_numbers.sheets(wanted.table)
    chosen = [found for found in sheets if wanted.anchor in ("", found.anchor)]
    if not chosen:
        known = ", ".join(dict.fromkeys(f"{found.table} {found.anchor}".strip() for found in paper_numbers.sheets()))
        raise UsageError(f"the paper has no table {wanted.table!r} {wanted.anchor}".rstrip(), hint=f"tables: {known}")
    accuracy = paper_numbers.accuracy_sheets()
    return [
        accuracy_layout(found.table, found.anchor) if found in accuracy else printed_layout(found) for found in chosen
    ]


def _ours(query: Query, found: Sequence[Chosen], wanted: Wanted) -> Layout:
    scores = measured(query, found)
    if not any(scores.values()):
        raise UsageError("no final evaluation in these runs", hint="`infuser resume` finishes a run")
    table = wanted.table or "main"
    return beside_paper(
        scores,
        anchor=wanted.anchor or anchor_of(table, found),
        table=table,
        base=ANCHOR_COLUMN if scores.get(ANCHOR_COLUMN) else "",
        intervals=question_intervals(query, found) if wanted.intervals else None,
    )


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
    counts = tallies(query, [one.run for one in found])
    ends: dict[str, Mapping[str, tuple[float, float]]] = {}
    for name in variants(found):
        held: dict[str, list[dict[str, float]]] = {}
        for one in found:
            if one.variant == name:
                for (phase, benchmark), tally in counts[one.run].items():
                    if phase == "evaluate":
                        own = dict(zip(tally.question_ids, map(float, shares(tally)), strict=True))
                        held.setdefault(benchmark, []).append(own)
        ends[name] = {benchmark: _interval(seeds) for benchmark, seeds in held.items()}
    return ends


def _interval(seeds: Sequence[Mapping[str, float]]) -> tuple[float, float]:
    common = [name for name in seeds[0] if all(name in seed for seed in seeds)]
    found = estimate(np.array([sum(seed[name] for seed in seeds) / len(seeds) for name in common]))
    return 100 * found.low, 100 * found.high
