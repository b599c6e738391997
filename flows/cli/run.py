"""Commands that start, resume and fork runs, and export a model."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from infuser_core import settings
from infuser_core.store import runs

if TYPE_CHECKING:
    from infuser_core.config.run import RunConfig
    from infuser_core.planning.fork import Fork

From = Annotated[str, typer.Option("--from", metavar="PHASE@T", help="Compute again from here on, stored or not.")]
Until = Annotated[str, typer.Option("--until", metavar="PHASE[@T]", help="Stop after this.")]
Only = Annotated[str, typer.Option("--only", metavar="PHASE@T", help="Compute this alone, from stored inputs.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would run, why, and how long it takes; run nothing.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON (with --dry-run).")]


def register(app: typer.Typer) -> None:
    """Add the commands to the `infuser` command."""
    for command in (fork, export):
        app.command()(command)


def start(
    config: "RunConfig",
    name: str,
    *,
    again: str = "",
    until: str = "",
    only: str = "",
    dry_run: bool = False,
    as_json: bool = False,
    wait: bool = False,
) -> bool:
    """Plan a run, or execute it. True when it came to its end."""
    from infuser_core.planning.place import asked_of

    asked = asked_of(again=again, until=until, only=only)
    if dry_run:
        from flows import deployment
        from infuser_core.planning.history import history_of

        root = settings.store_root()
        deployment.prepare_environment(root)
        from flows.plan import plan

        found = plan(history_of(root, name, config), name, asked)
        typer.echo(json.dumps(found.to_json()) if as_json else found.text())
        return False
    from flows.execute import execute

    execute(config, name, wait=wait, asked={"again": again, "until": until, "only": only})
    return _came_to_its_end(name)


def _came_to_its_end(name: str) -> bool:
    journal = runs.Journal(settings.store_root(), name)
    if journal.is_finished():
        return True
    said = journal.last_attempt()[-1].message
    typer.echo(f"run {name} {said}; `infuser resume {name}` goes on")
    return False


def fork(
    run: Annotated[str, typer.Argument(help="The run to leave.")],
    at: Annotated[int, typer.Option(metavar="T", help="First iteration with settings of its own.")],
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="key=value, e.g. cotrain.reward.name=variance.")
    ] = None,
    name: Annotated[str, typer.Option(help="Name of the fork; by default it follows from run, T and settings.")] = "",
    start_now: Annotated[bool, typer.Option("--start", help="Execute it at once.")] = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Make a variant of a run that shares everything before iteration T and has settings of its own from there on."""
    from flows import deployment
    from infuser_core.planning.fork import fork_of

    root = settings.writable_store_root()
    planned = fork_of(root, runs.find_run(root, run), at=at, changes=set_ or [], name=name)
    deployment.prepare_environment(root)
    if not start_now or dry_run:
        _make(root, planned, dry_run=dry_run, as_json=as_json)
        return
    # Prefect looks for its server when it is first imported.
    with deployment.server(root):
        _make(root, planned, dry_run=False, as_json=as_json)
        start(planned.history.latest, planned.name)


def _make(root: Path, planned: "Fork", *, dry_run: bool, as_json: bool) -> None:
    from flows.plan import plan_fork
    from infuser_core.planning.fork import write

    plan = plan_fork(planned)
    if not dry_run:
        write(root, planned)
    facts = {"run": planned.name, "forked_from": planned.origin, "at": planned.at, "recorded": not dry_run}
    if as_json:
        typer.echo(json.dumps({**plan.to_json(), **facts}))
        return
    typer.echo(f"{planned.name}: {planned.origin} until iteration {planned.at}, then settings of its own")
    typer.echo(plan.text())
    if not dry_run:
        typer.echo(f"recorded: `infuser resume {planned.name}` computes it")


def export(
    run: Annotated[str, typer.Argument(help="A run.")],
    iteration: Annotated[str, typer.Option(metavar="T|selected", help="Iterations that the checkpoint has seen.")],
    out: Annotated[Path, typer.Option(help="New folder for the model.")],
    role: Annotated[str, typer.Option(help="solver or generator.")] = "solver",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Write a checkpoint as a Hugging Face model folder, with a card that says what it is."""
    from infuser_core.export.model import export as write_model

    root = settings.store_root()
    found = write_model(root, runs.find_run(root, run), iteration=iteration, role=role, out=out)
    typer.echo(json.dumps(found.to_json()) if as_json else found.text())
