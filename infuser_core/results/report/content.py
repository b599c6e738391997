"""Parts of a report before rendering (sections, tables, figures), and the formats of numbers in tables."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from textwrap import wrap
from typing import Any

from infuser_core.results.lineage.story import printable
from infuser_core.results.report.charts import Figure, Row
from infuser_core.terminal import format_rows

Query = Callable[[str], list[Row]]
"""Runs one SQL statement over the run's views and returns its rows."""
Formats = Mapping[str, Callable[[Any], str]]
"""Column of a query to the function that formats its values."""

NOTHING = "-"
WIDTH = 100
"""Characters per line in a terminal."""
_CELL = 48
"""Characters of a cell in a terminal."""


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
    """A section of the report under one heading. Lines and cells are plain text."""

    title: str
    lines: list[str] = field(default_factory=list)
    """Sentences below the heading."""
    figures: list[Figure] = field(default_factory=list)
    tables: list[ReportTable] = field(default_factory=list)
    sql: list[str] = field(default_factory=list)
    """SQL statements that its numbers come from, each usable with `infuser sql`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A report: a first page that one would print or send, and details."""

    title: str
    sections: list[ReportSection]
    """Details."""
    summary: Sequence[str] = ()
    """Sentences under the title."""
    front: Sequence[ReportSection] = ()
    """Sections of the first page."""

    @property
    def all_sections(self) -> list[ReportSection]:
        """Sections of the first page, then details."""
        return [*self.front, *self.sections]


def table(
    title: str, rows: Sequence[Row], formats: Formats | None = None, *, without: Sequence[str] = ()
) -> ReportTable:
    """A table of query rows, without the columns `without`; numbers get three decimals, integers none."""
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
    """A section as text for a terminal: its lines and tables."""
    tables = [part for one in section.tables for part in _parts_in_width(one)]
    return "\n".join([*(line for text in section.lines for line in wrap(text, WIDTH)), *tables])


def _parts_in_width(table: ReportTable) -> list[str]:
    """A table as text; one that is too wide in several parts, each with the first column."""
    cells = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    sizes = {name: max(len(name), *(min(_CELL, len(row[name])) for row in cells)) + 2 for name in table.columns}
    first, *others = table.columns
    parts, width = [[first]], sizes[first]
    for name in others:
        if width + sizes[name] > WIDTH and len(parts[-1]) > 1:
            parts.append([first])
            width = sizes[first]
        parts[-1].append(name)
        width += sizes[name]
    return [format_rows([{name: row[name] for name in names} for row in cells], width=_CELL) for names in parts]


def plain(value: object) -> str:
    """Format a text or a number for a table."""
    return text(value) if isinstance(value, str) else number(value)


def number(value: object, digits: int = 3) -> str:
    """Format a number with fixed decimals, integers without; a dash for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return NOTHING
    return f"{value:,}" if isinstance(value, int) else f"{value:,.{digits}f}"


tenths = partial(number, digits=1)
"""Formats a number with one decimal."""


def small(value: object) -> str:
    """Format a number of unknown magnitude with three significant digits."""
    return f"{value:.3g}" if isinstance(value, int | float) and math.isfinite(value) else NOTHING


def percent(value: object) -> str:
    """Format a share as a percentage with one decimal."""
    return f"{100 * value:.1f}%" if isinstance(value, int | float) and math.isfinite(value) else NOTHING


def points(value: object) -> str:
    """Format a difference of shares in percentage points, with its sign."""
    return f"{100 * value:+.1f}" if isinstance(value, int | float) and math.isfinite(value) else NOTHING


def interval(ends: Sequence[object], show: Callable[[object], str] = percent) -> str:
    """Format an interval, by default of shares; a dash if an end is missing."""
    parts = [show(end) for end in ends]
    return NOTHING if NOTHING in parts else " to ".join(parts)


points_interval = partial(interval, show=points)
"""Formats an interval of differences in percentage points."""


def text(value: object) -> str:
    """Format text as one line without control characters; a dash if it is empty."""
    line = " ".join(printable("" if value is None else str(value)).split())
    return line or NOTHING
