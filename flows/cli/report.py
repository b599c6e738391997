"""Commands that report on runs: a page, a comparison, question quality, the form of answers."""

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.options import AsJson, Html, RunName, show
from infuser_core import settings
from infuser_core.store import runs

Runs = Annotated[list[str] | None, typer.Argument(metavar="[RUN]...", help="Runs; the latest if omitted.")]
Finished = Annotated[list[str] | None, typer.Argument(metavar="[RUN]...", help="Runs; all finished ones if omitted.")]
Figures = Annotated[Path | None, typer.Option(help="Folder for every chart as an SVG and a PNG file.")]


def page(
    names: Runs = None,
    html: Html = None,
    figures: Figures = None,
    compare_with: Annotated[str | None, typer.Option(help="Run whose curve is drawn next to a single run's.")] = None,
) -> None:
    """Write a run's report, or one page for several runs."""
    from infuser_core.results.report import build

    root = settings.store_root()
    selected = runs.find_runs(root, names or [])
    if len(selected) == 1:
        other = runs.find_run(root, compare_with) if compare_with else None
        path = build.write_report(root, selected[0], compare_with=other, html=html, figures=figures)
        typer.echo(html or path)
        return
    path = html or root / "reports" / "report.html"
    build.write_several(root, selected, html=path, figures=figures)
    typer.echo(path)


def compare(
    names: Finished = None,
    against: Annotated[str, typer.Option(help="Only differences from this variant, e.g. nano-fixed-generator.")] = "",
    as_json: AsJson = False,
    html: Html = None,
    figures: Figures = None,
) -> None:
    """Compare variants over seeds.

    By the area under the validation curve and by test accuracy, with their spread over seeds.
    """
    from infuser_core.results.report import comparison

    root = settings.store_root()
    typer.echo(comparison.compare(root, names or [], as_json=as_json, against=against))
    if html is not None or figures is not None:
        from infuser_core.results.report.build import write_several

        path = html or root / "reports" / "compare.html"
        write_several(root, runs.finished_runs(root, names or []), html=path, figures=figures)
        typer.echo(f"page: {path}", err=True)


def quality(
    run: RunName = None,
    iterations: Annotated[str, typer.Option(help="Numbers, first, last or all, joined by commas.")] = "first,last",
    solver: Annotated[list[str] | None, typer.Option(help="A model, named as for eval; the first is the base.")] = None,
    judge: Annotated[
        str, typer.Option(help="Model that decides whether questions are self-contained; rules by default.")
    ] = "",
    strong: Annotated[str, typer.Option(help="Solver that checks the keys; by default the best one.")] = "",
    samples: Annotated[int, typer.Option(min=1, max=1_000_000, help="Responses per question.")] = 4,
    limit: Annotated[
        int | None, typer.Option(min=1, max=1_000_000, help="Questions per iteration, drawn by a hash.")
    ] = None,
    examples: Annotated[
        int, typer.Option(min=0, max=1000, help="Documents whose questions are shown side by side.")
    ] = 3,
    html: Html = None,
    as_json: AsJson = False,
) -> None:
    """Check a run's generated questions over its iterations.

    Solvers against keys, self-containedness, repetition.
    """
    from flows.studies import quality as study

    facts = study(
        run,
        iterations=iterations,
        solvers=solver or [],
        judge=judge,
        strong=strong,
        samples=samples,
        limit=limit,
        examples=examples,
        html=html,
    )

    def text() -> str:
        from infuser_core.results.report.content import terminal
        from infuser_core.results.report.quality import quality_section

        head = f"run {facts['run']}, generated questions against the generator's own keys; base {facts['base'] or '-'}"
        return "\n".join([head, terminal(quality_section(facts)), f"page: {facts['page']}"])

    show(facts, text, as_json=as_json)


def habits(
    run: RunName = None,
    phase: Annotated[
        str, typer.Option(help="Phase whose responses are described; by default the first that the run has.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Show the format of answers over training.

    Boxes, endings, chat marks, scripts, lengths.
    """
    from infuser_core.results.report.content import terminal
    from infuser_core.results.report.response_format import format_section, run_response_format

    name, form = run_response_format(settings.store_root(), run, phase=phase)
    head = f"run {name}, answers of {form['phase'] or 'no phase'}"
    show({"run": name, **form}, lambda: f"{head}\n{terminal(format_section(form))}", as_json=as_json)
