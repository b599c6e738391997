"""The `infuser` command: its groups, exit codes, and how errors are printed."""

import os
import platform
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from flows.cli import configs, corpus, evaluate, inspect, options, report, run, score, store, study
from flows.execute import INTERRUPTED, exit_code, print_error
from infuser_core.errors import UsageError
from infuser_core.store import verify
from infuser_core.terminal import format_warning

app = typer.Typer(
    help="Trains a reasoning model from textbooks alone, guided by influence: from the books to a report.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
# Read-only commands; only these may skip digest checks.
_READING = ("sql", "result", "report", "show", "why", "diff", "export")


def _version(requested: bool) -> None:
    from importlib.metadata import PackageNotFoundError, version

    if not requested:
        return
    try:
        number = version("infuser")
    except PackageNotFoundError:  # a checkout on PYTHONPATH
        number = "-"
    typer.echo(f"infuser {number}, Python {platform.python_version()}, {Path(__file__).parents[2]}")
    raise typer.Exit


@app.callback()
def _shared(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Print version, Python and folder.")
    ] = False,
    trust: Annotated[
        bool, typer.Option("--trust", help=f"Do not compare the digests of what is read: {', '.join(_READING)}.")
    ] = False,
) -> None:
    if not trust:
        return
    if context.invoked_subcommand not in _READING:
        raise UsageError(f"--trust {context.invoked_subcommand}", hint=f"--trust is for {', '.join(_READING)}")
    verify.trust()


_NAMES: Mapping[Callable[..., None], str] = {
    run.nano_build: "build",
    run.nano_accuracy: "accuracy",
    inspect.list_runs: "runs",
    inspect.show_artifact: "show",
    evaluate.evaluate: "model",
    store.import_anchor: "import",
}
"""Names of commands that differ from their functions."""


def _add(group: typer.Typer, *commands: Callable[..., None], name: str = "") -> None:
    """Add commands to a group, and the group of that name to the `infuser` command."""
    for command in commands:
        group.command(_NAMES.get(command))(command)
    if name:
        app.add_typer(group, name=name)


def _group(text: str, *, default: str = "") -> typer.Typer:
    return typer.Typer(cls=options.group(default), help=text, no_args_is_help=not default)


_add(app, run.run, run.resume, run.plan, run.rehearse, run.sweep, run.serve, run.quickstart)
_add(app, configs.init, configs.configs, inspect.list_runs)
_add(app, inspect.show_artifact, inspect.status, inspect.result, inspect.sql, inspect.why, inspect.diff, inspect.view)
_add(app, evaluate.verify, score.score, store.doctor, store.gc, store.export)

_nano = _group("The nano lab: tiny models that the project trains itself.")
_add(_nano, run.nano_build, run.nano_accuracy, name="nano")
_reports = _group("Report on runs: `infuser report RUN...` writes a page.", default="page")
_add(_reports, report.page, report.compare, report.quality, report.habits, name="report")
_evaluations = _group("Evaluate a model: `infuser eval --model MODEL`; or score saved answers again.", default="model")
_add(_evaluations, evaluate.evaluate, evaluate.rescore, evaluate.passk, evaluate.check, name="eval")
_studies = _group("Study the influence score of a run.")
_add(_studies, study.prediction, study.selection, study.lds, study.gradient_quality, study.frozen, name="study")
_add(_group("Pretrained models that runs start from."), store.import_anchor, name="anchor")
_corpus = _group("Build, audit and convert pools of textbook chunks.")
_add(_corpus, corpus.build, corpus.audit, corpus.convert, corpus.merge, corpus.report, name="corpus")


# Newer typers include their own click, whose errors are not the installed click's.
_UsageError: type[Any] = typer.BadParameter.__bases__[0]


def main() -> None:
    """Run a command. An error becomes one line, a hint and its documented exit code."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    warnings.formatwarning = format_warning
    try:
        sys.exit(exit_code(_command))
    except typer.Exit as stop:
        sys.exit(stop.exit_code)
    except _UsageError as error:
        if error.format_message():  # empty after the help that a call without arguments prints
            print_error(error.format_message(), "`infuser --help` lists the commands")
        sys.exit(2)


def _command() -> None:
    try:
        code = app(standalone_mode=False)
    except typer.Abort as abort:
        raise KeyboardInterrupt from abort
    if code == INTERRUPTED:  # newer typers swallow the interrupt and return this
        raise KeyboardInterrupt
    if isinstance(code, int) and code:
        raise typer.Exit(code)


if __name__ == "__main__":
    main()
