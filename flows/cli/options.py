"""Arguments that several commands share, and functions that print results."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from infuser_core.store.runs import list_runs
from infuser_core.terminal import printable, to_json

RunName = Annotated[str | None, typer.Argument(metavar="RUN", help="Name of a run; the latest if omitted.")]
"""Argument of a run."""
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
"""Option for output to programs."""
Verbose = Annotated[bool, typer.Option("--verbose", help="Print every line of a long list.")]
"""Option for lists that are folded by default."""
Changes = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override one setting.")]
Html = Annotated[Path | None, typer.Option(help="Write a self-contained HTML page to this file.")]
"""Option for a page."""


def group(default: str = "") -> type[TyperGroup]:
    """Class of a command group whose command `default` may be omitted."""

    class CommandGroup(TyperGroup):
        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            if default and args[:1] != ["--help"] and args[:1] not in [[name] for name in self.commands]:
                args = [default, *args]
            return super().parse_args(ctx, args)

    return CommandGroup


def show(facts: Any, text: str | Callable[[], str], *, as_json: bool) -> None:
    """Print the result of a command, as JSON or as text."""
    if as_json:
        typer.echo(to_json(facts))
    else:
        typer.echo(printable(text if isinstance(text, str) else text()))


def note_latest(root: Path, run: str | None, name: str, command: str) -> str:
    """Last line of an answer about the run `name`, if the store has several and the user named none; else empty."""
    names = list_runs(root)
    if run is not None or len(names) < 2:
        return ""
    place = f"latest of {len(names)} runs" if name == names[-1] else f"the latest of {len(names)} runs is its control"
    return f"\n{place}; `infuser {command} RUN` for another, `infuser runs` lists them"


def warn(line: str) -> None:
    """Print a warning on standard error."""
    typer.echo(f"warning: {line}", err=True)


def write_page(path: Path, page: str) -> None:
    """Write a page and print its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, encoding="utf-8")
    typer.echo(path, err=True)
