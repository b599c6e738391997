"""Publication tables of runs: their accuracies at the selected checkpoints beside the paper's printed tables."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from infuser_core.errors import UsageError
from infuser_core.paper import numbers
from infuser_core.report.bands import value
from infuser_core.report.chosen import Chosen, chosen_sql, variants
from infuser_core.report.content import Query, text
from infuser_core.report.contrast import tallies
from infuser_core.report.exams import MEASURED
from infuser_core.report.paper_tables import accuracy_layout, beside_paper, printed_layout
from infuser_core.report.publication import Layout, Style, averages_only, plain, render
from infuser_core.statistics.bootstrap import estimate
from infuser_core.statistics.rounding import Rounding, exactly
from infuser_core.statistics.tally import shares

ANCHOR_COLUMN = "anchor, measured"
STYLES = get_args(Style)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a table is asked for."""

    table: str = ""
    """Table of the paper; empty for main with runs, for all without."""
    anchor: str = ""
    """The paper's anchor model; empty for the one that the runs started from, else the table's first."""
    style: str = "markdown"
    """markdown, latex, csv or json."""
    base: str = ""
    """Column that relative improvements are over; empty for the measured anchor."""
    intervals: bool = False
    """Whether 95% intervals over questions are shown."""
    averages: bool = False
    """Whether only averages and relative improvements are shown."""
    rounding: str = "exact"
    """How averages are made."""


def published(query: Query | None, found: Sequence[Chosen], wanted: Wanted) -> str:
    """The tables as text; without runs the paper's own. Raises UsageError for what does not exist."""
    if wanted.style not in (*STYLES, "json"):
        raise UsageError(f"no format {wanted.style!r}", hint=f"one of {', '.join(STYLES)}, or --json")
    if wanted.rounding not in get_args(Rounding):
        raise UsageError(f"no rounding {wanted.rounding!r}", hint=f"one of {', '.join(get_args(Rounding))}")
    layouts = [_ours(query, found, wanted)] if query is not None and found else _papers(wanted)
    if wanted.averages:
        layouts = [averages_only(one) for one in layouts if any(line.summary for line in one.lines)]
    if wanted.style == "json":
        return json.dumps([plain(one) for one in layouts], indent=1, ensure_ascii=False) + "\n"
    style: Any = wanted.style
    return "\n".join(render(one, style, intervals=wanted.intervals) for one in layouts)


def _papers(wanted: Wanted) -> list[Layout]:
    """The paper's tables, as printed."""
    accuracy = {(found.table, found.anchor) for found in numbers.accuracy_sheets()}
    places = dict.fromkeys(
        (found.table, found.anchor)
        for found in numbers.sheets()
        if wanted.table in ("", found.table) and wanted.anchor in ("", found.anchor)
    )
    if not places:
        known = ", ".join(dict.fromkeys(f"{found.table} {found.anchor}".strip() for found in numbers.sheets()))
        raise UsageError(f"the paper has no table {wanted.table!r} {wanted.anchor}".rstrip(), hint=f"tables: {known}")
    sheets = [found for found in numbers.sheets() if (found.table, found.anchor) in places]
    return [
        accuracy_layout(found.table, found.anchor) if (found.table, found.anchor) in accuracy else printed_layout(found)
        for found in sheets
    ]


def _ours(query: Query, found: Sequence[Chosen], wanted: Wanted) -> Layout:
    scores = measured(query, found)
    if not any(scores.values()):
        raise UsageError("no final evaluation in these runs", hint="`infuser resume` finishes a run")
    if wanted.base and wanted.base not in scores:
        raise UsageError(f"no column {wanted.base!r}", hint=f"columns: {', '.join(scores)}")
    table = wanted.table or "main"
    return beside_paper(
        scores,
        anchor=wanted.anchor or anchor_of(table, found),
        table=table,
        base=wanted.base or (ANCHOR_COLUMN if scores.get(ANCHOR_COLUMN) else ""),
        intervals=question_intervals(query, found) if wanted.intervals else None,
        rounding="paper" if wanted.rounding == "paper" else "exact",
    )


def anchor_of(table: str, found: Sequence[Chosen]) -> str:
    """The table's anchor that the runs started from, by its name; the table's first where there is none."""
    anchors = [one.anchor for one in numbers.accuracy_sheets() if one.table == table]
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
    import numpy as np

    common = [name for name in seeds[0] if all(name in seed for seed in seeds)]
    found = estimate(np.array([sum(seed[name] for seed in seeds) / len(seeds) for name in common]))
    return 100 * found.low, 100 * found.high
