"""`infuser quickstart`: run INFUSER and the fixed-generator control in parallel, and print both curves."""

import os
import shutil
import sys
from pathlib import Path

import typer

from flows.execute import describe_failure, execute, spawn
from infuser_core import settings
from infuser_core.config import shipped
from infuser_core.config.overlays import load
from infuser_core.config.run import RunConfig
from infuser_core.errors import StageError
from infuser_core.planning.preflight import preflight
from infuser_core.store import runs
from infuser_core.store.journal import Journal

BASE = shipped.path_of("nano")
CONTROL = shipped.path_of("ablation/fixed_generator")
KEEP = "store.keep={full: 2, weights_every: 0}"
"""Without it, the checkpoints of both runs take 800 MB. What is removed can be computed again, bit for bit."""


def quickstart(*, iterations: int, seed: int) -> None:
    """Run INFUSER and the control in two one-thread processes over the same corpus, and print the results."""
    changes = [f"cotrain.iterations={iterations}", KEEP]
    main = load([BASE], changes, seed=seed)
    control = load([BASE, CONTROL], changes, seed=seed)
    preflight(main)
    root = settings.writable_store_root()
    log = root / "quickstart-control.log"
    typer.echo(f"store: {root}\nINFUSER:  {main.run_name()}\ncontrol:  {control.run_name()} (log: {log})")
    if Journal(root, control.run_name()).is_finished():
        # The control is complete, so a second process would only cost its imports.
        execute(main, main.run_name(), page=False)
        execute(control, control.run_name())
    else:
        options = [word for change in changes for word in ("--set", change)]
        arguments = ["run", str(BASE), str(CONTROL), *options, "--seed", str(seed)]
        _run_in_parallel(main, arguments, root, log)
    runs.mark_latest(root, main.run_name())
    _summarise(root, main, control)


def _run_in_parallel(main: RunConfig, arguments: list[str], root: Path, log: Path) -> None:
    """Run INFUSER in this process and the control in another."""
    process = spawn(arguments, root, log=log)
    try:
        # The report is written once, with the control's curve.
        execute(main, main.run_name(), page=False)
        if code := process.wait():
            failure = describe_failure(code, log)
            raise StageError(
                f"the control run failed: {failure}", hint="`make quickstart` continues from its last stage"
            )
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()


def _summarise(root: Path, main: RunConfig, control: RunConfig) -> None:
    from infuser_core.results.lineage.outcome import describe_keys, describe_result
    from infuser_core.results.report.build import comparison_page, curves

    names = {"INFUSER": main.run_name(), "fixed generator": control.run_name()}
    page = comparison_page(root, main.run_name(), control.run_name())
    typer.echo("\nvalidation accuracy by iteration")
    typer.echo(curves(root, names))
    for label, name in names.items():
        typer.echo(f"\n{label}")
        typer.echo(describe_result(root, name))
        typer.echo(describe_keys(root, name))
    typer.echo(f"\nreport: {page}")
    typer.echo(
        "Influence rewards questions on the dev set's topics with right keys; the control's generator is never updated."
    )
    typer.echo("The headroom is constructed; the report says how, and what drives the gain.")
    typer.echo("\nnext:")
    for line in _next_lines(main.run_name()):
        typer.echo(f"  {line}")


def _next_lines(run: str) -> list[str]:
    """Commands to paste into the shell, which first activates the environment if it has no `infuser`."""
    lines = [
        "infuser result                # anchor against selected checkpoint",
        "infuser view                  # questions, answers, scores and book pages in the browser",
        f"infuser why {run}   # what was run, what came out, the best and the worst questions",
        'infuser sql "select * from scores limit 5"',
    ]
    if shutil.which("infuser") is None:
        lines.insert(0, f"source {os.path.relpath(sys.prefix)}/bin/activate")
    return lines
