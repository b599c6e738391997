"""Commands for a second copy of the store, and for the question whether a folder can hold one."""

import json
from pathlib import Path
from typing import Annotated

import typer

from infuser_core import settings

Url = Annotated[str, typer.Argument(help="s3://bucket/folder, gs://..., file:///folder: anything that fsspec opens.")]
RunName = Annotated[str | None, typer.Argument(help="Name of a run; everything when left out.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

_INCOMPLETE = 3
mirror = typer.Typer(
    help="Keep a second copy of the store, e.g. in an object store. Keys come from the environment.",
    no_args_is_help=True,
)


def register(app: typer.Typer) -> None:
    """Add the commands to the `infuser` command."""
    for command in (push, pull, status):
        mirror.command()(command)
    app.add_typer(mirror, name="mirror")
    app.command("store-check")(store_check)


def push(
    url: Url,
    run: RunName = None,
    quick: Annotated[bool, typer.Option("--quick", help="Do not read back what was sent.")] = False,
    as_json: AsJson = False,
) -> None:
    """Copy what is committed and not there yet, commit records last, and verify it. Deletes nothing."""
    from infuser_core.mirror.push import push as send
    from tasks.care import meter

    with meter("mirror push") as progress:
        done = send(settings.store_root(), url, run, quick=quick, progress=progress)
    typer.echo(json.dumps(done.to_json()) if as_json else done.text())
    if done.problems:
        raise typer.Exit(_INCOMPLETE)


def pull(
    url: Url,
    run: RunName = None,
    whole: Annotated[bool, typer.Option("--whole", help="Bring back what gc removed here, too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Copy what is complete in the mirror and not here, verifying every digest. Deletes nothing."""
    from infuser_core.mirror.pull import pull as fetch
    from tasks.care import meter

    with meter("mirror pull") as progress:
        done = fetch(settings.writable_store_root(), url, run, whole=whole, progress=progress)
    typer.echo(json.dumps(done.to_json()) if as_json else done.text())
    if done.problems:
        raise typer.Exit(_INCOMPLETE)


def status(
    url: Url,
    run: RunName = None,
    check: Annotated[bool, typer.Option("--check", help="Read every file of the mirror, verify its digest.")] = False,
    as_json: AsJson = False,
) -> None:
    """Compare the store with its mirror: what a push would send and a pull would fetch. Changes nothing."""
    from infuser_core.mirror.status import status as look
    from tasks.care import meter

    with meter("mirror status") as progress:
        found = look(settings.store_root(), url, run, check=check, progress=progress)
    typer.echo(json.dumps(found.to_json()) if as_json else found.text())
    if found.problems:
        raise typer.Exit(_INCOMPLETE)


def store_check(
    folder: Annotated[Path | None, typer.Argument(help="Folder to try; the store's when left out.")] = None,
    as_json: AsJson = False,
) -> None:
    """Try whether a folder's file system keeps the promises that a store needs: renames, locks, fsync."""
    from infuser_core.store import filesystem

    place = folder or settings.writable_store_root()
    found = filesystem.probe(place)
    plain = [{name: getattr(promise, name) for name in ("name", "kept", "needed", "what")} for promise in found]
    typer.echo(json.dumps(plain) if as_json else filesystem.text(place, found))
    if any(promise.needed and not promise.kept for promise in found):
        raise typer.Exit(_INCOMPLETE)
