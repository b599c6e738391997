"""Commands about configurations: list the shipped ones, and write a first one."""

import shlex
import shutil
from pathlib import Path
from typing import Annotated

import typer

from flows.cli.options import AsJson, show
from infuser_core.errors import UsageError


def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder for the file; created if missing.")],
) -> None:
    """Write a commented configuration to start from.

    It has the settings that people change first, and runs unchanged.
    """
    from infuser_core.config import shipped

    source = shipped.path_of(shipped.START)
    path = folder.joinpath(source.name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with source.open("rb") as template, path.open("xb") as file:
            shutil.copyfileobj(template, file)
    except FileExistsError as error:
        raise UsageError(f"{error.filename} exists", hint="name another folder: nothing is overwritten") from None
    steps = f"edit anchor, data.dev and corpus.pool in it, then: infuser run {shlex.quote(str(path))}"
    typer.echo(f"{path}\nnext: {steps}")


def configs(as_json: AsJson = False) -> None:
    """List the shipped configurations.

    Their names are accepted in place of files.
    """
    from infuser_core.config import shipped

    shipped_configs = list(shipped.configurations())
    facts = [{"name": one.name, "kind": one.kind, "text": one.text, "path": str(one.path)} for one in shipped_configs]

    width = max(len(one.name) for one in shipped_configs)
    lines = [f"{one.name:<{width}}  {one.text}" for one in shipped_configs]
    end = "overlays, which lie in folders, follow a complete one: infuser run qwen3-8b engine/eight-gpus"
    show(facts, "\n".join([*lines, "", end]), as_json=as_json)
