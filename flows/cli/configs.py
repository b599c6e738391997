"""Commands about configurations: the shipped ones, and a first one of one's own."""

import shlex
import shutil
from pathlib import Path
from typing import Annotated

import typer

from flows.cli.options import AsJson, show
from infuser_core.errors import UsageError


def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder for it; made where it is missing.")],
) -> None:
    """Write a configuration to start from: every setting that people change first, with a comment. It runs as it is."""
    from infuser_core.config import shipped

    source = shipped.path_of(shipped.START)
    path = folder.joinpath(source.name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with source.open("rb") as template, path.open("xb") as file:
            shutil.copyfileobj(template, file)
    except FileExistsError as error:
        raise UsageError(f"{error.filename} exists", hint="name another folder: nothing is overwritten") from None
    typer.echo(f"{path}\nnext: infuser run {shlex.quote(str(path))}")


def configs(as_json: AsJson = False) -> None:
    """List the shipped configurations, whose names stand for files: `infuser run nano`."""
    from infuser_core.config import shipped

    found = list(shipped.configurations())
    facts = [{"name": one.name, "kind": one.kind, "text": one.text, "path": str(one.path)} for one in found]

    width = max(len(one.name) for one in found)
    lines = [f"{one.name:<{width}}  {one.text}" for one in found]
    end = "overlays, which lie in folders, follow a complete one: infuser run qwen3-8b engine/eight-gpus"
    show(facts, "\n".join([*lines, "", end]), as_json=as_json)
