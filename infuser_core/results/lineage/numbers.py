"""Numbers and times as pages show them: three significant digits, percentages for shares, local time."""

import math
from datetime import UTC, datetime
from typing import Any

from infuser_core.results.lineage.story import format_value
from infuser_core.schemas import COLUMNS, Column

DASH = "–"
_AGES = ((86400.0 * 2, 86400.0, "days"), (3600.0 * 2, 3600.0, "h"), (60.0 * 2, 60.0, "min"))
"""Least age, seconds per unit, unit."""


def number(value: float | None) -> str:
    """A number with three significant digits; whole numbers in full."""
    if value is None or not math.isfinite(value):
        return DASH
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def percent(share: float | None) -> str:
    """A share as a percentage with three significant digits."""
    return DASH if share is None else f"{100 * share:.3g}%"


def signed(value: float | None) -> str:
    """A number with its sign and three decimals, for influence and differences."""
    return DASH if value is None else f"{value:+.3f}" if abs(value) >= 0.0005 else f"{value:+.1g}" if value else "0"


def points(difference: float) -> str:
    """A difference of two shares in percentage points, with its sign."""
    return f"{100 * difference:+.0f}"


def cell(value: Any, column: str = "") -> str:
    """The value of a column on one line, by the column's description."""
    if isinstance(value, float):
        return percent(value) if COLUMNS.get(column, Column()).is_share else number(value)
    return f"{value:,}" if type(value) is int and column != "seed" else format_value(value)


def local_time(moment: str) -> str:
    """An ISO time as local time with its zone."""
    return f"{datetime.fromisoformat(moment).astimezone():%-d %b %Y, %H:%M %Z}" if moment else ""


def age(moment: str, now: datetime | None = None) -> str:
    """Time since an ISO time, such as `2 h ago`; empty for an unknown time."""
    if not moment:
        return ""
    seconds = ((now or datetime.now(UTC)) - datetime.fromisoformat(moment)).total_seconds()
    return next((f"{seconds / size:.0f} {unit} ago" for least, size, unit in _AGES if seconds >= least), "just now")
