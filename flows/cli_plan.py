"""Commands that say beforehand what a run will cost."""

import typer


def register(app: typer.Typer) -> None:
    """Add the commands to the `infuser` command."""
