"""Parts of a report before it is rendered: sections, tables, charts."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from textwrap import wrap
from typing import Any

from infuser_core.results.lineage.story import printable
from infuser_core.results.report.charts import Figure, Row
from infuser_core.terminal import table as aligned

Query = Callable[[str], list[Row]]
"""Runs one SQL statement over the run's views and returns its rows."""
Formats = Mapping[str, Callable[[Any], str]]
"""Column of a query to the function that writes its values."""

NOTHING = "-"
WIDTH = 118
"""Characters of a line in a terminal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportTable:
    """Formatted rows under column names."""

    title: str
    """Caption; may be empty."""
    columns: list[str]
    rows: list[list[str]]
    text_columns: int = 1
    """Leading columns that hold text; the others hold numbers and are aligned right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSection:
    """One heading of the report. Lines and cells are plain text."""

    title: str
    lines: list[str] = field(default_factory=list)
    """Sentences below the heading."""
    figures: list[Figure] = field(default_factory=list)
    tables: list[ReportTable] = field(default_factory=list)
    sql: list[str] = field(default_factory=list)
    """Statements that its numbers come from, each for `infuser sql`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A whole report."""

    title: str
    sections: list[ReportSection]


def table(
    title: str, rows: Sequence[Row], formats: Formats | None = None, *, without: Sequence[str] = ()
) -> ReportTable:
    """Rows of a query under the names of its columns, but those `without`; numbers have three decimals, or none."""
    assert rows, title
    shows = {name: (formats or {}).get(name, plain) for name in rows[0] if name not in without}
    texts = {name for row in rows for name, cell in row.items() if isinstance(cell, str)}
    leading = list(takewhile(lambda name: shows[name] is plain and name in texts, shows))
    return ReportTable(
        title=title,
        columns=list(shows),
        rows=[[show(row[name]) for name, show in shows.items()] for row in rows],
        text_columns=max(1, len(leading)),
    )


def terminal(section: ReportSection) -> str:
    """The lines and tables of a section for a terminal."""
    tables = [aligned([dict(zip(one.columns, row, strict=True)) for row in one.rows]) for one in section.tables]
    return "\n".join([*(line for text in section.lines for line in wrap(text, WIDTH)), *tables])


def plain(value: object) -> str:
    """A text or a number for a table."""
    return text(value) if isinstance(value, str) else number(value)


def number(value: object, digits: int = 3) -> str:
    """A number with fixed decimals (whole numbers without), or a dash for no number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return NOTHING
    return f"{value:,}" if isinstance(value, int) else f"{value:,.{digits}f}"


tenths = partial(number, digits=1)
"""A number with one decimal."""


def small(value: object) -> str:
    """A number of unknown size with three significant digits."""
    return f"{value:.3g}" if isinstance(value, int | float) and math.isfinite(value) else NOTHING


def percent(value: object) -> str:
    """A share as a percentage with one decimal."""
    return f"{100 * value:.1f}%" if isinstance(value, int | float) and math.isfinite(value) else NOTHING


def points(value: object) -> str:
    """A difference of shares in percentage points, with its sign."""
    return f"{100 * value:+.1f}" if isinstance(value, int | float) and math.isfinite(value) else NOTHING


def interval(ends: Sequence[object], show: Callable[[object], str] = percent) -> str:
    """An interval of shares, or a dash if an end is missing."""
    parts = [show(end) for end in ends]
    return NOTHING if NOTHING in parts else " to ".join(parts)


points_interval = partial(interval, show=points)
"""An interval of differences."""


def text(value: object) -> str:
    """One line of text without control characters, or a dash if it is empty."""
    line = " ".join(printable("" if value is None else str(value)).split())
    return line or NOTHING
