"""Builds reports from SQL alone: the same data gives the same bytes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from infuser_core import durable
from infuser_core.report import markdown, page, sections
from infuser_core.report.content import Query, Report, Section
from infuser_core.report.figures import png, svg
from infuser_core.report.others import Answered
from infuser_core.report.queries import Chosen


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFiles:
    """Where the report was written."""

    markdown: Path
    """`report.md`: tables and texts."""
    html: Path
    """`report.html`: one self-contained page with charts."""


def build(
    query: Query,
    *,
    run: str,
    out: Path,
    compare_with: str | None = None,
    notes: Sequence[str] = (),
    chosen: Chosen | None = None,
    answered: Sequence[Answered] = (),
    added: Sequence[Section] = (),
    figures: Path | None = None,
) -> ReportFiles:
    """Write `report.md` and `report.html` of a run into the folder `out`, and its charts as files into `figures`."""
    known = chosen or Chosen(run=run, variant=run, seed=0, leaves={})
    report = sections.report(
        query, run=run, compare_with=compare_with, notes=notes, chosen=known, answered=answered, added=added
    )
    files = ReportFiles(markdown=out / "report.md", html=out / "report.html")
    durable.write(files.markdown, markdown.render(report))
    durable.write(files.html, page.render(report))
    if figures is not None:
        save_figures(report, figures)
    return files


def save_figures(report: Report, folder: Path) -> list[Path]:
    """Every chart as an SVG and a PNG file on white, named by what it shows; returns the paths."""
    saved = []
    for figure in (one for section in report.sections for one in section.figures):
        for ending, content in (("svg", svg(figure.drawing, themed=False)), ("png", png(figure.drawing))):
            saved.append(folder / f"{figure.drawing.name}.{ending}")
            durable.write(saved[-1], content)
    return saved
