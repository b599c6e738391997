"""Builds a run's report from SQL alone: the same data gives the same bytes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from infuser_core.report import markdown, page, sections
from infuser_core.report.content import Query


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFiles:
    """Where the report was written."""

    markdown: Path
    """`report.md`: tables and texts."""
    html: Path
    """`report.html`: one self-contained page with charts."""


def build(
    query: Query, *, run: str, out: Path, compare_with: str | None = None, notes: Sequence[str] = ()
) -> ReportFiles:
    """Write `report.md` and `report.html` of a run into the folder `out`, which is created where missing."""
    report = sections.report(query, run=run, compare_with=compare_with, notes=notes)
    out.mkdir(parents=True, exist_ok=True)
    files = ReportFiles(markdown=out / "report.md", html=out / "report.html")
    files.markdown.write_text(markdown.render(report), encoding="utf-8", newline="\n")
    files.html.write_text(page.render(report), encoding="utf-8", newline="\n")
    return files
