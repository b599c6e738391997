"""Commands that start runs from other runs, and take models out of them."""

import typer


def register(app: typer.Typer) -> None:
    """Add the commands to the `infuser` command."""
