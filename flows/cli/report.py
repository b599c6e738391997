"""Commands that show results: reports, comparisons, publication tables, the paper's own numbers."""

from pathlib import Path
from typing import Annotated

import typer

from infuser_core import settings
from infuser_core.errors import UsageError
from infuser_core.store import runs

Names = Annotated[list[str] | None, typer.Argument(metavar="[RUN]...", help="Runs; the latest when left out.")]
Compared = Annotated[
    list[str] | None, typer.Argument(metavar="[RUN]...", help="Runs; all finished ones when left out.")
]
Tabled = Annotated[
    list[str] | None, typer.Argument(metavar="[RUN]...", help="Runs; the paper's numbers alone when left out.")
]
Html = Annotated[Path | None, typer.Option(help="Write the page here; it needs no other file.")]
Figures = Annotated[Path | None, typer.Option(help="Folder for every chart as an SVG and a PNG file.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the `infuser` command."""
    for command in (report, compare, paper):
        app.command()(command)
    app.command("paper-tables")(paper_tables)


def report(
    names: Names = None,
    html: Html = None,
    figures: Figures = None,
    compare_with: Annotated[str | None, typer.Option(help="Run whose curve is drawn beside a single run's.")] = None,
) -> None:
    """Write a run's report again, or one page for several runs; print where."""
    from infuser_core.report import build

    root = settings.store_root()
    chosen = build.find_runs(root, names or [])
    if len(chosen) == 1:
        other = runs.find_run(root, compare_with) if compare_with else None
        files = build.report(root, chosen[0], compare_with=other, html=html, figures=figures)
        typer.echo(html or files.html)
        return
    page = html or root / "reports" / "report.html"
    build.report_several(root, chosen, html=page, figures=figures)
    typer.echo(page)


def compare(
    names: Compared = None,
    against: Annotated[str, typer.Option(help="Only differences to this variant, e.g. nano-infuser.")] = "",
    as_json: AsJson = False,
    html: Html = None,
    figures: Figures = None,
) -> None:
    """Compare runs by variant: area under the validation curve and test accuracy, with their spread over seeds."""
    from infuser_core.report import build

    root = settings.store_root()
    typer.echo(build.compare(root, names or [], as_json=as_json, against=against))
    if html is not None or figures is not None:
        page = html or root / "reports" / "compare.html"
        build.report_several(root, build.finished_runs(root, names or []), html=page, figures=figures)
        typer.echo(f"page: {page}", err=True)


def paper_tables(
    names: Tabled = None,
    table: Annotated[str, typer.Option(help="The paper's table, e.g. main; all of them without runs.")] = "",
    anchor: Annotated[str, typer.Option(help="The paper's anchor model; that of the runs where it has it.")] = "",
    style: Annotated[str, typer.Option("--format", help="markdown, latex or csv.")] = "markdown",
    base: Annotated[str, typer.Option(help="Column that improvements are over; the runs' anchor if left out.")] = "",
    intervals: Annotated[bool, typer.Option("--intervals", help="Also 95% intervals over questions.")] = False,
    averages: Annotated[bool, typer.Option("--averages", help="Only averages and relative improvements.")] = False,
    rounding: Annotated[str, typer.Option(help="exact, or paper: averages of printed cells.")] = "exact",
    as_json: AsJson = False,
    out: Annotated[Path | None, typer.Option(help="Write the tables here instead of printing them.")] = None,
) -> None:
    """Print publication tables: our runs beside the numbers that the paper reports, or the paper's alone."""
    from infuser_core.report.build import publish
    from infuser_core.report.paper_tables import Wanted

    wanted = Wanted(
        table=table,
        anchor=anchor,
        style="json" if as_json else style,
        base=base,
        intervals=intervals,
        averages=averages,
        rounding=rounding,
    )
    text = publish(settings.store_root() if names else None, names or [], wanted)
    if out is None:
        typer.echo(text, nl=False)
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text, encoding="utf-8", newline="\n")
    typer.echo(out)


def paper() -> None:
    """Print where the paper's tables disagree with their own cells: docs/paper-inconsistencies.md of the checkout."""
    page = Path(__file__).parents[2] / "docs" / "paper-inconsistencies.md"
    if not page.is_file():
        raise UsageError(f"{page}: no such file", hint="read docs/paper-inconsistencies.md in the repository")
    typer.echo(page.read_text(encoding="utf-8"), nl=False)
