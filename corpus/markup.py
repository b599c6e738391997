"""Markdown of corpus and audit reports: tables and excerpts of texts."""

from collections.abc import Mapping, Sequence
from typing import Any

EXCERPT_CHARS = 400


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(_cell(value) for value in line) + " |" for line in lines)


def _cell(value: Any) -> str:
    return " ".join(str(value).split()).replace("|", "\\|")


def excerpt(label: str, text: str) -> str:
    """The beginning of a text as a quotation with a label."""
    words = " ".join(text.split())
    more = " ..." if len(words) > EXCERPT_CHARS else ""
    # Angle brackets and backticks of a source must not become markup of the report.
    safe = words[:EXCERPT_CHARS].replace("`", "'").replace("<", "&lt;")
    return f"**{_cell(label)}** ({len(text)} characters)\n\n> {safe}{more}"


def records_table(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> str:
    """A Markdown table of the fields `names`; `none` without rows."""
    return table(names, [[row[name] for name in names] for row in rows]) if rows else "none"


def controls_table(controls: Sequence[Mapping[str, Any]]) -> str:
    """A Markdown table of the share of each kind of planted control that each mode of an audit found."""
    if not controls:
        return "no controls: the pool has no text long enough"
    modes = [name for name in controls[0] if name not in ("kind", "planted", "expected")]
    rows = [
        [
            row["kind"] if row["expected"] else f"{row['kind']} (should not be found)",
            row["planted"],
            *(f"{row[mode]:.2f}" for mode in modes),
        ]
        for row in controls
    ]
    return table(["planted", "pairs", *(f"found by {mode}" for mode in modes)], rows)
