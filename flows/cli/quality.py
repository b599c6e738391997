"""Commands that look at what a run wrote: the quality of its questions, and the form of its answers."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

RunName = Annotated[str | None, typer.Argument(help="Name of a run; the latest when left out.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Solvers = Annotated[list[str] | None, typer.Option("--solver", help="A model as for eval; the first is the base.")]
Samples = Annotated[int, typer.Option(min=1, help="Responses per question.")]
_GAP = ("solver", "questions", "agreement", "gap", "low", "high")
_SOLVER = ("iteration", "solver", "questions", "agreement", "agreement_low", "agreement_high", "gap", "low", "high")
_CHECKS = ("iteration", "questions", "distinct", "self_contained", "pointing", "judged", "oracle_sound")


def register(app: typer.Typer) -> None:
    """Add the commands to the `infuser` command."""
    for command in (swg, quality, retention):
        app.command()(command)


def swg(
    run: RunName = None,
    iteration: Annotated[int, typer.Option(help="Iteration whose generated questions are asked.")] = 0,
    solver: Solvers = None,
    samples: Samples = 4,
    as_json: AsJson = False,
) -> None:
    """How much more often do strong solvers agree with the generator's keys than the base does?"""
    from flows.studies import swg as go
    from infuser_core.terminal import table

    found = go(run, iteration=iteration, solvers=solver or [], samples=samples, warn=_warn)
    if as_json:
        typer.echo(json.dumps(found, ensure_ascii=False))
        return
    typer.echo(f"run {found['run']}, questions of iteration {found['iteration']}, against the generator's own keys")
    rows = [{"gap": None, "low": None, "high": None} | row for row in found["solvers"]]
    typer.echo(table([{name: row[name] for name in _GAP} for row in rows]))


def quality(
    run: RunName = None,
    iterations: Annotated[str, typer.Option(help="Numbers, first, last or all, joined by commas.")] = "first,last",
    solver: Solvers = None,
    judge: Annotated[str, typer.Option(help="Model that says whether questions stand alone; rules without one.")] = "",
    strong: Annotated[str, typer.Option(help="Solver that keys are checked by; the best one when left out.")] = "",
    samples: Samples = 4,
    limit: Annotated[int | None, typer.Option(min=1, help="Questions per iteration, drawn by a hash.")] = None,
    examples: Annotated[int, typer.Option(min=0, help="Documents whose questions are shown side by side.")] = 3,
    html: Annotated[Path | None, typer.Option(help="Write the page here.")] = None,
    as_json: AsJson = False,
) -> None:
    """Check a run's questions over its iterations: solvers against keys, gaps, self-containedness, repetitions."""
    from flows.studies import QualityOrder, study

    order = QualityOrder(
        run=run,
        iterations=iterations,
        solvers=solver or [],
        judge=judge,
        strong=strong,
        samples=samples,
        limit=limit,
        examples=examples,
        html=html,
    )
    found = study(order, warn=_warn)
    if as_json:
        typer.echo(json.dumps(found, ensure_ascii=False))
        return
    _show(found)


def _show(found: dict[str, Any]) -> None:
    from infuser_core.terminal import table

    typer.echo(f"run {found['run']}, generated questions against the generator's own keys; base {found['base'] or '-'}")
    if found["solvers"]:
        typer.echo(table([{name: row[name] for name in _SOLVER} for row in found["solvers"]]))
    keys = ("agrees", "disputes", "undecided")
    rows = [
        {name: row[name] for name in _CHECKS} | {f"key {name}": row["keys"].get(name) for name in keys}
        for row in found["iterations"]
    ]
    typer.echo(table(rows))
    typer.echo(f"keys by {found['strongest'] or 'nobody'}; self-contained by {found['judge'] or 'rules'}")
    typer.echo(f"page: {found['page']}")


def retention(
    run: RunName = None,
    phase: Annotated[str, typer.Option(help="validate, rollout_dev or rollout_questions; what there is first.")] = "",
    as_json: AsJson = False,
) -> None:
    """What answers look like over training: boxes, ends, chat marks, script, lengths, and the generator's JSON."""
    from infuser_core import settings
    from infuser_core.report import habits as of_run
    from infuser_core.terminal import table

    found = of_run.habits(settings.store_root(), run, phase=phase)
    if as_json:
        typer.echo(json.dumps(found, ensure_ascii=False))
        return
    typer.echo(f"run {found['run']}, answers of {found['phase'] or 'nobody'}")
    for rows in of_run.tables(found):
        typer.echo(table(rows))


def _warn(line: str) -> None:
    typer.echo(f"warning: {line}", err=True)
