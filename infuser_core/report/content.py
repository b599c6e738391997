"""What a report consists of, before it is written as Markdown or as a page. Cells and lines are plain text."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from infuser_core.report.figures import Drawing

Query = Callable[[str], list[dict[str, object]]]
"""Runs one SQL statement over the run's views and returns its rows."""

NOTHING = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One number worth a glance."""

    label: str
    """What it is."""
    value: str
    """The number, formatted."""
    detail: str
    """Interval or unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Formatted rows under column names."""

    title: str
    """Caption; may be empty."""
    columns: list[str]
    """Column names."""
    rows: list[list[str]]
    """Formatted cells, one list per row."""
    text_columns: int = 1
    """Leading columns that hold text; the others hold numbers and are set flush right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A chart; its numbers also stand in a table of the section."""

    title: str
    """Caption, and the description for those who cannot see the chart."""
    drawing: "Drawing"
    """What is drawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A generated question with what became of it."""

    title: str
    """Iteration and question id."""
    facts: list[tuple[str, str]]
    """Short (label, value) pairs."""
    texts: list[tuple[str, str]]
    """Longer (label, text) pairs, as models wrote them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One heading of the report."""

    title: str
    """Heading."""
    lines: list[str] = field(default_factory=list)
    """Sentences below the heading; where a view is empty, the one that says so."""
    cards: list[Card] = field(default_factory=list)
    """Headline numbers."""
    figures: list[Figure] = field(default_factory=list)
    """Charts."""
    tables: list[Table] = field(default_factory=list)
    """Tables."""
    samples: list[Sample] = field(default_factory=list)
    """Sample questions."""
    sql: list[str] = field(default_factory=list)
    """Statements that its numbers came from; `infuser sql` runs each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A whole report."""

    title: str
    """Title with the run's name."""
    sections: list[Section]
    """Sections in reading order."""


def number(value: object, digits: int = 3) -> str:
    """A number with fixed decimals (whole numbers without), or a dash where there is none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return NOTHING
    return f"{value:,}" if isinstance(value, int) else f"{value:,.{digits}f}"


def small(value: object) -> str:
    """A number of unknown size with three significant digits."""
    return f"{value:.3g}" if isinstance(value, int | float) and math.isfinite(value) else NOTHING


def percent(value: object) -> str:
    """A share as a percentage with one decimal."""
    return f"{100 * value:.1f}%" if isinstance(value, int | float) and math.isfinite(value) else NOTHING


def text(value: object) -> str:
    """One line of text without control characters, or a dash where there is none."""
    shown = " ".join(printable("" if value is None else str(value)).split())
    return shown or NOTHING


def printable(value: str) -> str:
    """Text without control characters other than line breaks and tabs."""
    return "".join(char for char in value if char in "\n\t" or char.isprintable())
