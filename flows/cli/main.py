"""The `infuser` command line: entry point, exit codes, and how errors are printed."""

import json
import os
import sys
import warnings
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from flows.cli import corpus, evaluate, inspect, plan, quality, report, store, sweep
from flows.cli import run as cli_runs
from infuser_core import settings
from infuser_core.benchmarks.parts.spec import one_line
from infuser_core.errors import InfuserError
from infuser_core.store import runs

app = typer.Typer(
    help="Influence-guided self-evolution of a reasoning model, from textbooks to a report.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
nano = typer.Typer(help="The nano lab: tiny models that the project makes itself.", no_args_is_help=True)
app.add_typer(nano, name="nano")

_INTERRUPTED = 130
RunName = Annotated[str | None, typer.Argument(help="Name of a run; the latest when left out.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Wait = Annotated[bool, typer.Option("--wait", help="Where another process executes the run, wait for its end.")]


@app.command()
def run(
    configs: Annotated[list[Path], typer.Argument(help="YAML files, merged left to right.")],
    set_: Annotated[list[str] | None, typer.Option("--set", help="key=value, e.g. cotrain.iterations=40.")] = None,
    name: Annotated[str | None, typer.Option(help="Name of the run; by default it follows from the settings.")] = None,
    seed: Annotated[int | None, typer.Option(help="Run seed.")] = None,
    again: cli_runs.From = "",
    until: cli_runs.Until = "",
    only: cli_runs.Only = "",
    dry_run: cli_runs.DryRun = False,
    as_json: cli_runs.AsJson = False,
    wait: Wait = False,
) -> None:
    """Run the whole life cycle, or go on with it: what the store has is not computed again."""
    from infuser_core.config.overlays import load
    from infuser_core.planning.preflight import preflight

    config = load(configs, set_ or [], seed=seed)
    preflight(config)
    chosen = name or config.run_name()
    asked = {"again": again, "until": until, "only": only}
    if cli_runs.start(config, chosen, **asked, dry_run=dry_run, as_json=as_json, wait=wait):
        _print_result(chosen)


@app.command()
def resume(
    run: RunName = None,
    again: cli_runs.From = "",
    until: cli_runs.Until = "",
    only: cli_runs.Only = "",
    dry_run: cli_runs.DryRun = False,
    as_json: cli_runs.AsJson = False,
    wait: Wait = False,
) -> None:
    """Go on with a run from its last completed stage."""
    from infuser_core.config.overlays import validate

    root = settings.store_root()
    name = runs.find_run(root, run)
    config = validate(runs.read_config(root, name))
    asked = {"again": again, "until": until, "only": only}
    if cli_runs.start(config, name, **asked, dry_run=dry_run, as_json=as_json, wait=wait):
        _print_result(name)


@app.command("runs")
def list_runs() -> None:
    """List the runs in the store."""
    from infuser_core.planning.history import origin_of

    root = settings.store_root()
    for name in runs.list_runs(root):
        parts = (name, _state(root, name), origin_of(root, name))
        typer.echo("  ".join(part for part in parts if part))


def _state(root: Path, name: str) -> str:
    journal = runs.Journal(root, name)
    if runs.is_held(root, name):
        return "running"
    if journal.is_finished():
        return "done"
    last = journal.last_attempt()
    if last and last[-1].state == "stopped":
        return last[-1].message
    failed = [entry for entry in last if entry.state == "failed"]
    return f"failed in {failed[-1].phase}: {failed[-1].message}" if failed else "interrupted"


@app.command()
def status(run: RunName = None, as_json: AsJson = False) -> None:
    """Show the stages of a run's latest attempt."""
    root = settings.store_root()
    name = runs.find_run(root, run)
    entries = runs.Journal(root, name).last_attempt()
    if as_json:
        rows = [{field: getattr(entry, field) for field in entry.__dataclass_fields__} for entry in entries]
        typer.echo(json.dumps({"run": name, "state": _state(root, name), "stages": rows}))
        return
    typer.echo(f"{name}: {_state(root, name)}")
    for entry in entries:
        where = f"iteration {entry.iteration}" if entry.iteration >= 0 else ""
        typer.echo(
            f"{entry.phase:20} {where:14} {entry.state:7} {entry.seconds:8.2f} s {entry.rows:7d} rows  {entry.key}"
        )


@app.command()
def result(run: RunName = None, as_json: AsJson = False) -> None:
    """Show a run's benchmarks: the anchor beside the selected checkpoint."""
    name = runs.find_run(settings.store_root(), run)
    if as_json:
        from infuser_core.report.build import result as of_run

        typer.echo(json.dumps(of_run(settings.store_root(), name)))
        return
    _print_result(name)


def _print_result(name: str) -> None:
    from infuser_core.report.build import describe_result

    typer.echo(describe_result(settings.store_root(), name))


@app.command()
def digest(run: RunName = None) -> None:
    """Print one line per artifact and one for the run: independent of times, hosts and paths."""
    from infuser_core.store.recipe import digest_of

    root = settings.store_root()
    name = runs.find_run(root, run)
    lines = sorted({f"{entry.phase} {entry.key} {entry.digest}" for entry in runs.Journal(root, name).latest()})
    for line in lines:
        typer.echo(line)
    typer.echo(f"run {digest_of(lines)}")


@app.command()
def show(artifact: Annotated[str, typer.Argument(help="Key or id of an artifact, or the start of one.")]) -> None:
    """Show an artifact: rows, recipe, upstream ids and the SQL that opens it."""
    from tasks.inspection import show as page

    typer.echo(page(settings.store_root(), artifact))


@app.command()
def sql(
    statement: Annotated[str, typer.Argument(help="A DuckDB statement over the store's views.")],
    run: Annotated[str | None, typer.Option(help="Only this run's rows.")] = None,
    as_json: AsJson = False,
) -> None:
    """Query rollouts, questions, scores, updates, documents of all runs and iterations by row."""
    from tasks.inspection import query

    typer.echo(query(settings.store_root(), statement, run=run, as_json=as_json))


@app.command("validate-influence")
def validate_influence(
    run: RunName = None,
    iteration: Annotated[int, typer.Option(help="Iteration whose questions are studied.")] = 0,
    questions: Annotated[int, typer.Option(help="Scored questions to step on.")] = 64,
    rollouts: Annotated[int, typer.Option(help="Rollouts per dev and held-out question.")] = 64,
    retest: Annotated[list[int] | None, typer.Option(help="Group sizes of the test-retest measurement.")] = None,
    figure: Annotated[Path | None, typer.Option(help="Write the study's figure (SVG) here.")] = None,
    as_json: AsJson = False,
) -> None:
    """Does the score predict? Step on single questions and measure the change of the dev objective."""
    from flows.studies import validate_influence as study

    found = study(
        run, iteration=iteration, questions=questions, rollouts=rollouts, retest=retest or [4, 8], figure=figure
    )
    typer.echo(json.dumps(found) if as_json else _study_table(found))


def _study_table(found: dict[str, Any]) -> str:
    from infuser_core.terminal import table

    head = f"run {found['run']}, iteration {found['iteration']}, {found['trials']} questions"
    reliability = "; ".join(f"{name}: {value:.3f}" for name, value in found["reliability"].items())
    return "\n".join([head, f"test-retest r of the score: {reliability}", table(found["correlations"])])


@app.command("frozen-solver")
def frozen_solver(
    configs: Annotated[list[Path], typer.Argument(help="YAML files, merged left to right.")],
    set_: Annotated[list[str] | None, typer.Option("--set", help="key=value.")] = None,
    seed: Annotated[int | None, typer.Option(help="Run seed.")] = None,
    updates: Annotated[int, typer.Option(help="Generator updates.")] = 30,
    figure: Annotated[Path | None, typer.Option(help="Write the curve (SVG) here.")] = None,
    as_json: AsJson = False,
) -> None:
    """The control of the paper: with a frozen solver and one batch of documents, does the mean score rise?"""
    from flows.studies import frozen_solver as control
    from infuser_core.terminal import table

    found = control(configs, set_ or [], seed=seed, updates=updates, figure=figure)
    head = f"mean score of the first five updates {found['first']:.4f}, of the last five {found['last']:.4f}"
    typer.echo(json.dumps(found) if as_json else f"run {found['run']}: {head}\n{table(found['curve'])}")


@app.command()
def serve(
    port: Annotated[int, typer.Option(help="Port of the Prefect server and UI.")] = 4200,
) -> None:
    """Bring up Prefect's server and UI on loopback, and the deployment infuser/full-pipeline."""
    from flows.deployment import serve as bring_up

    bring_up(settings.writable_store_root(), port)


@app.command()
def quickstart(
    iterations: Annotated[int, typer.Option(help="Co-training iterations.")] = 20,
    seed: Annotated[int, typer.Option(help="Run seed.")] = 42,
) -> None:
    """The whole life cycle on this machine: INFUSER and, beside it, the fixed-generator control."""
    from flows.quickstart import quickstart as go

    go(iterations=iterations, seed=seed)


@nano.command("build")
def nano_build(
    out: Annotated[Path, typer.Argument(help="Folder for the new anchor.")],
    scale: Annotated[float, typer.Option(help="Share of the full number of training steps.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Seed of the build.")] = 0,
    world: Annotated[
        str, typer.Option(help="basic, hard, strong or wide; the others start from the basic one.")
    ] = "basic",
) -> None:
    """Pre-train the nano anchor from scratch."""
    from infuser_core.nano.build import build_anchor

    card = build_anchor(out, steps_scale=scale, seed=seed, world=world, progress=partial(typer.echo, err=True))
    typer.echo(json.dumps(card["base_rates"], indent=2))


for _commands in (
    evaluate,
    corpus,
    inspect,
    store,
    cli_runs,
    plan,
    sweep,
    report,
    quality,
):
    _commands.register(app)


def main() -> None:
    """Entry point: errors become one line and a hint, and the documented exit codes."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    warnings.formatwarning = one_line
    try:
        code = app(standalone_mode=False)
        if code == _INTERRUPTED:  # newer typers swallow the interrupt and return this
            raise KeyboardInterrupt
        sys.exit(code if isinstance(code, int) else 0)
    except InfuserError as error:
        _complain(error.message, error.hint)
        sys.exit(error.exit_code)
    except typer.Exit as stop:
        sys.exit(stop.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        _complain("interrupted", "finished work is kept: run the same command again, or `infuser resume`")
        sys.exit(_INTERRUPTED)
    except _usage_error() as error:
        if error.format_message():  # without arguments the help was shown instead
            _complain(error.format_message(), "`infuser --help` lists the commands")
        sys.exit(2)


def _usage_error() -> type[Any]:
    # Newer typers carry a click of their own, whose errors are not the installed click's.
    return typer.BadParameter.__bases__[0]


def _complain(message: str, hint: str) -> None:
    typer.echo(f"infuser: {' '.join(message.splitlines())}", err=True)
    if hint:
        typer.echo(f"  hint: {hint}", err=True)


if __name__ == "__main__":
    main()
