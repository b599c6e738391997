"""Commands that look into a run: lineage, differences, data."""

import json
from pathlib import Path
from typing import Annotated

import typer

from infuser_core import settings

InRun = Annotated[str | None, typer.Option("--run", help="Run to look in; all of them, the latest first, without.")]
OneRun = Annotated[str | None, typer.Option("--run", help="Name of a run; the latest when left out.")]
RunName = Annotated[str | None, typer.Argument(help="Name of a run; the latest when left out.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Html = Annotated[Path | None, typer.Option(help="Write one self-contained page here.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the `infuser` command."""
    for command in (why, lineage, undo, diff):
        app.command()(command)


def why(
    name: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            help="Question, rollout, document, source, artifact key or id, RUN@ITERATION, RUN/BENCHMARK[/QUESTION].",
        ),
    ],
    run: InRun = None,
    as_json: AsJson = False,
    html: Html = None,
) -> None:
    """Say where a question, rollout, checkpoint, document or score comes from, and what it did."""
    from infuser_core.lineage.answer import to_text
    from infuser_core.lineage.why import why as ask

    answer = ask(settings.store_root(), name, run=run)
    if html is not None:
        from infuser_core.lineage.pages import to_html

        _write(html, to_html(answer))
    if as_json:
        typer.echo(json.dumps(answer.to_json()))
    elif html is None:
        typer.echo(to_text(answer))


def lineage(run: RunName = None, html: Html = None, as_json: AsJson = False) -> None:
    """Draw what was made from what: the artifacts of a run, iterations as columns, phases as rows."""
    from infuser_core.lineage.pages import of_run

    view = of_run(settings.store_root(), run)
    if html is not None:
        _write(html, view.html())
    if as_json:
        typer.echo(json.dumps(view.to_json()))
    elif html is None:
        typer.echo(view.text())


def undo(
    source: Annotated[str | None, typer.Option(help="Textbook to do without.")] = None,
    document: Annotated[str | None, typer.Option(help="Chunk of a textbook to do without.")] = None,
    question: Annotated[str | None, typer.Option(help="Generated question to do without.")] = None,
    run: OneRun = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="Make a run without it, reusing all it did not touch.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show what depends on a textbook, chunk or question, and what a run without it would cost."""
    from infuser_core.lineage.undo import plan

    found = plan(settings.store_root(), run, source=source, document=document, question=question)
    typer.echo(json.dumps(found.to_json()) if as_json else found.text(applied=apply))
    if apply:
        from flows.execute import execute
        from infuser_core.config.overlays import validate
        from infuser_core.planning.fork import record_variant

        record_variant(settings.store_root(), found.run, found.fork, found.change)
        execute(validate(found.config), found.fork)
        typer.echo(f"run {found.fork} is done: `infuser diff {found.run} {found.fork}` compares the two", err=as_json)


def diff(
    first: Annotated[str, typer.Argument(metavar="RUN_A", help="A run.")],
    second: Annotated[str, typer.Argument(metavar="RUN_B", help="The run to compare it with.")],
    as_json: AsJson = False,
) -> None:
    """Compare two runs: settings, code versions, the first artifact that differs and why, metrics side by side."""
    from infuser_core.lineage.diff import compare

    found = compare(settings.store_root(), first, second)
    typer.echo(json.dumps(found.to_json()) if as_json else found.text())


def _write(path: Path, page: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, encoding="utf-8")
    typer.echo(path, err=True)
