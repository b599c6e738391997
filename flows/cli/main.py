"""The `infuser` command: its groups, exit codes, and how errors are printed."""

import os
import platform
import sys
import warnings
from collections.abc import Callable, Mapping
from inspect import cleandoc
from pathlib import Path
from typing import Annotated, Any

import typer

from flows.cli import configs, corpus, evaluate, inspect, options, report, run, score, store, study
from flows.execute import INTERRUPTED, exit_code, print_error
from infuser_core.errors import UsageError
from infuser_core.store import verify
from infuser_core.store.runs import software
from infuser_core.terminal import format_warning

app = typer.Typer(
    help="Train a reasoning model from textbooks, guided by influence scores.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
# Read-only commands; only these may skip digest checks.
_READING = ("sql", "result", "report", "show", "why", "diff", "export")


def _version(requested: bool) -> None:
    if not requested:
        return
    number = software().get("infuser", "-")  # a checkout on PYTHONPATH is not installed
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
    verify.skip_verification()


_EXAMPLE = "Example: "
_NAMES: Mapping[Callable[..., None], str] = {
    run.nano_build: "build",
    run.nano_accuracy: "accuracy",
    inspect.list_runs: "runs",
    inspect.show_artifact: "show",
    evaluate.evaluate: "model",
    store.import_anchor: "import",
}
"""Names of commands that differ from their functions."""


def _add(group: typer.Typer, examples: Mapping[Callable[..., None], str], *, panel: str = "") -> None:
    """Add commands to a group, each with an example that ends its help, in one panel of the group's help."""
    for command, example in examples.items():
        group.command(
            _NAMES.get(command),
            help=_join_lines(command.__doc__ or ""),
            epilog=f"{_EXAMPLE}infuser {example}",
            rich_help_panel=panel or None,
        )(command)


def _join_lines(docstring: str) -> str:
    """Put each paragraph on one line, which the window wraps; paragraphs that begin with `\\b` keep their lines."""
    paragraphs = cleandoc(docstring).split("\n\n")
    joined = (each[2:] if each.startswith("\b\n") else " ".join(each.split()) for each in paragraphs)
    return "\n\n".join(joined)


def _add_group(
    name: str, help_: str, examples: Mapping[Callable[..., None], str], *, panel: str, default: str = ""
) -> None:
    """Add a group of commands to the `infuser` command."""
    group = typer.Typer(cls=options.group(default), help=help_, no_args_is_help=not default)
    _add(group, {command: f"{name} {example}" for command, example in examples.items()})
    app.add_typer(group, name=name, rich_help_panel=panel)


_add(
    app,
    {
        run.quickstart: "quickstart --iterations 10",
        configs.init: "init my-run",
        configs.configs: "configs",
        run.run: "run nano --set cotrain.iterations=10",
        run.resume: "resume nano-s42",
        run.plan: "plan nano --gpus cpu",
        run.rehearse: "rehearse nano --gpus cpu",
        run.sweep: "sweep sweep/nano --jobs 2",
        run.serve: "serve --port 4200",
    },
    panel="Run",
)
_add(
    app,
    {
        inspect.list_runs: "runs",
        inspect.status: "status nano-s42 --last 5",
        inspect.result: "result nano-s42",
        inspect.view: "view",
        inspect.why: "why nano-s42",
        inspect.show_artifact: "show pool",
        inspect.sql: 'sql "select iteration, avg(score) from scores group by 1 order by 1"',
    },
    panel="Look",
)
_add(app, {inspect.diff: "diff nano-s42 nano-fixed-generator-s42"}, panel="Analyse")
_add_group(
    "report",
    "Write a report, compare variants, check the questions.",
    {
        report.page: "nano-s42 --html report.html",
        report.compare: "compare --against nano-fixed-generator",
        report.quality: "quality nano-s42 --iterations first,last",
        report.habits: "habits nano-s42",
    },
    panel="Analyse",
    default="page",
)
_add_group(
    "study",
    "Test what the influence scores of a run are worth.",
    {
        study.prediction: "prediction nano-s42 --iteration 1",
        study.selection: "selection nano-s42 --iteration 1",
        study.lds: "lds nano-s42 --iteration 1",
        study.gradient_quality: "gradient-quality nano-s42",
        study.frozen: "frozen nano-s42",
    },
    panel="Analyse",
)
_add(
    app,
    {
        store.doctor: "doctor nano-s42",
        store.gc: "gc",
        store.export: "export nano-s42 --iteration selected --out my-model",
    },
    panel="Store",
)
_add_group(
    "corpus",
    "Build, audit and convert pools of textbook chunks.",
    {
        corpus.build: "build --source book.pdf --out pool",
        corpus.audit: "audit --pool pool --reference test.jsonl --out audit",
        corpus.convert: "convert documents.json --out pool",
        corpus.merge: "merge pool-a pool-b --out pool",
        corpus.report: "report pool --html books.html",
    },
    panel="Books",
)
_add_group(
    "eval",
    "Evaluate a model on benchmarks, or score saved answers.",
    {
        evaluate.evaluate: "--model nano --benchmarks all --limit 20",
        evaluate.probe: "probe --model nano --benchmarks nano_target",
        evaluate.rescore: "rescore nano-s42",
        evaluate.passk: "passk nano-s42 --k 1,2,4",
        evaluate.check: "check --benchmarks all",
    },
    panel="Models",
    default="model",
)
_add(
    app,
    {
        evaluate.verify: "verify < lines.jsonl",
        score.score: "score --model nano --dev dev.jsonl --questions questions.jsonl --out scores.parquet",
    },
    panel="Models",
)
_add_group(
    "anchor",
    "Import pretrained models that runs start from.",
    {store.import_anchor: "import model.gguf my-model"},
    panel="Models",
)
_add_group(
    "nano",
    "Build and measure the tiny models of the nano lab.",
    {run.nano_build: "build my-anchor --scale 0.01", run.nano_accuracy: "accuracy nano nano-s42@selected"},
    panel="Models",
)


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
            print_error(error.format_message(), _usage_hint(error.ctx))
        sys.exit(2)


def _usage_hint(context: Any) -> str:
    """Hint for wrong arguments: the help of the command that they are for, and an example of it."""
    if context is None or context.parent is None:
        return "`infuser --help` lists the commands"
    example = str(context.command.epilog or "").removeprefix(_EXAMPLE)
    help_ = f"`{context.command_path} --help` explains the command"
    return f"e.g. `{example}`; {help_}" if example else help_


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
