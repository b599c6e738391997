"""Write Markdown tables and excerpts of texts, for the reports on pools and audits."""

from collections.abc import Mapping, Sequence
from typing import Any

EXCERPT_CHARS = 400


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Make a Markdown table of a header and rows."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(_cell(value) for value in line) + " |" for line in lines)


def _cell(value: Any) -> str:
    return " ".join(str(value).split()).replace("|", "\\|")


def excerpt(label: str, text: str) -> str:
    """Quote the beginning of a text in Markdown, with a label."""
    words = " ".join(text.split())
    more = " ..." if len(words) > EXCERPT_CHARS else ""
    # Angle brackets and backticks of a source must not become markup of the report.
    safe = words[:EXCERPT_CHARS].replace("`", "'").replace("<", "&lt;")
    return f"**{_cell(label)}** ({len(text)} characters)\n\n> {safe}{more}"


def records_table(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> str:
    """Make a Markdown table of the fields `names` of some records; returns `none` if there are no records."""
    return table(names, [[row[name] for name in names] for row in rows]) if rows else "none"


def controls_table(controls: Sequence[Mapping[str, Any]]) -> str:
    """Make a Markdown table of an audit's recall: the share of each kind of planted control that each mode found."""
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
