"""The command that runs many runs."""

import json
import os
from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command to the `infuser` command."""
    app.command()(sweep)


def sweep(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="Sweep files: base configurations and axes; see configs/sweep/."),
    ],
    jobs: Annotated[int, typer.Option(min=1, help="Runs at a time, one process each.")] = os.cpu_count() or 1,
    against: Annotated[str, typer.Option(help="Compare with this variant alone, e.g. nano-infuser.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the runs and stop.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Run every combination of grids of overlays; the same command goes on after a crash. Then compare."""
    from infuser_core import settings
    from infuser_core.planning.sweeps import read_all
    from infuser_core.store import runs

    members = read_all(files, against=against)
    root = settings.store_root()
    if dry_run:
        rows = [
            {"run": m.run, "variant": m.variant, "seed": m.seed, "done": runs.Journal(root, m.run).is_finished()}
            for m in members
        ]
        lines = (f"{row['run']}  {'done' if row['done'] else 'to do'}" for row in rows)
        typer.echo(json.dumps(rows) if as_json else "\n".join(lines))
        return
    from flows.sweep import sweep as run_all
    from infuser_core.report.build import compare

    run_all(members, jobs=jobs, quiet=as_json)
    typer.echo(compare(root, [member.run for member in members], as_json=as_json, against=against))
