"""Commands that check, repair and clean up the store."""

import json
from pathlib import Path
from typing import Annotated

import typer

from infuser_core import settings
from infuser_core.store import runs

RunName = Annotated[str | None, typer.Argument(help="Name of a run; the whole store when left out.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Place = Annotated[str, typer.Argument(metavar="RUN@ITERATION", help="Checkpoints after so many iterations.")]

_DAMAGED = 3


def register(app: typer.Typer) -> None:
    """Add the commands to the `infuser` command."""
    for command in (doctor, repair, gc, pin, unpin):
        app.command()(command)
    app.command("store-check")(store_check)


def doctor(run: RunName = None, as_json: AsJson = False) -> None:
    """Verify every digest, reference and record; 0 for a healthy store, 3 for a damaged one. Changes nothing."""
    from infuser_core.store.doctor import examine
    from tasks.care import meter

    root = settings.store_root()
    with meter("doctor") as progress:
        found = examine(root, runs.find_run(root, run) if run else None, progress=progress)
    typer.echo(json.dumps(found.to_json()) if as_json else found.text())
    if found.damage:
        raise typer.Exit(_DAMAGED)


def repair(
    run: RunName = None,
    iteration: Annotated[
        int | None, typer.Option(help="Compute the pruned checkpoints after so many iterations again.")
    ] = None,
) -> None:
    """Move damaged artifacts aside and compute them, and what depends on them, again. Deletes nothing."""
    from flows.repair import mend
    from infuser_core.store import doctor as repairing
    from tasks.care import meter

    root = settings.writable_store_root()
    name = runs.find_run(root, run) if run or iteration is not None else None
    with meter("repair") as progress:
        prepared = repairing.prepare(root, name, progress=progress)
    wanted = repairing.pruned_at(root, name, iteration) if name and iteration is not None else []
    names = sorted({*prepared.runs, *([name] if name and wanted else [])})
    if prepared.aside:
        typer.echo("\n".join(each.line for each in prepared.aside))
    mend(root, names, [*prepared.restore, *wanted])
    typer.echo(repairing.describe(root, prepared, names, wanted))


def gc(
    apply: Annotated[bool, typer.Option("--apply", help="Remove what is listed.")] = False,
    keep_full: Annotated[
        int, typer.Option(min=1, help="Newest checkpoints of a run that stay whole, for training to go on from.")
    ] = 2,
    every: Annotated[int, typer.Option(min=0, help="Every so many iterations the weights stay; 0 for none.")] = 5,
    as_json: AsJson = False,
) -> None:
    """Show what may go and how much that is: old checkpoints, leftovers, artifacts of no run. Nothing else deletes."""
    from infuser_core.store.gc import apply as remove
    from infuser_core.store.gc import plan

    root = settings.store_root()
    if apply:
        with runs.sweeping(root):
            found = plan(root, keep_full=keep_full, every=every)
            remove(root, found)
    else:
        found = plan(root, keep_full=keep_full, every=every)
    typer.echo(json.dumps({**found.to_json(), "applied": apply}) if as_json else found.text(applied=apply))


def pin(
    place: Annotated[str, typer.Argument(metavar="RUN@ITERATION", help="Checkpoints after so many iterations.")] = "",
    list_: Annotated[bool, typer.Option("--list", help="List what is pinned.")] = False,
    as_json: AsJson = False,
) -> None:
    """Keep a run's checkpoints after so many iterations whole: gc leaves them alone."""
    from infuser_core.store import retention

    root = settings.store_root()
    if place:
        typer.echo(retention.pin(root, place), err=as_json)
    if list_ or not place:
        found = retention.listed(root)
        typer.echo(json.dumps(found) if as_json else "\n".join(retention.lines(found)))


def unpin(place: Place) -> None:
    """Let gc thin these checkpoints out again."""
    from infuser_core.store import retention

    typer.echo(retention.unpin(settings.store_root(), place))


def store_check(
    folder: Annotated[Path | None, typer.Argument(help="Folder to try; the store's when left out.")] = None,
    as_json: AsJson = False,
) -> None:
    """Try whether a folder's file system can hold a store: atomic renames, locks, fsync."""
    from dataclasses import asdict

    from infuser_core.store import filesystem

    place = folder or settings.writable_store_root()
    found = filesystem.probe(place)
    typer.echo(json.dumps([asdict(promise) for promise in found]) if as_json else filesystem.text(place, found))
    if any(promise.needed and not promise.kept for promise in found):
        raise typer.Exit(_DAMAGED)
