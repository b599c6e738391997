"""Commands that say beforehand what a run will cost."""

import json
from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the commands to the `infuser` command."""
    app.command()(plan)


def plan(
    configs: Annotated[list[Path], typer.Argument(help="YAML files, merged left to right.")],
    gpus: Annotated[str, typer.Option(help="8xH100, 1xRTX4090, or 2x8xH100 for two nodes of eight.")],
    set_: Annotated[list[str] | None, typer.Option("--set", help="key=value, e.g. engine.token_budget=8192.")] = None,
    tokens: Annotated[
        list[str] | None, typer.Option(help="Mean length or share, e.g. solver_response=900; --json lists them.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Known model or folder with config.json, for the anchor.")] = None,
    schedule: Annotated[
        str, typer.Option(help="First column: published (calibrated) or packed (this program).")
    ] = "published",
    disk: Annotated[float, typer.Option(min=0.01, help="Speed of the store's disk, GB/s.")] = 3.0,
    scale: Annotated[bool, typer.Option("--scale", help="Simulate 8 to 512 GPUs and say where scaling stops.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Forecast a run: memory per GPU, seconds per phase, bytes, GPU-hours, and what to change where it does not fit."""
    from infuser_core.capacity.advice import advice
    from infuser_core.capacity.answer import as_json as in_json
    from infuser_core.capacity.answer import as_text
    from infuser_core.capacity.forecast import ask, forecast
    from infuser_core.capacity.scaling import scale as simulate
    from infuser_core.overlays import load

    asked = ask(load(configs, set_ or []), gpus, model=model, tokens=tokens or [], disk=disk)
    found = forecast(asked, schedule=schedule)
    knobs = advice(asked)
    scaled = simulate(asked, schedule) if scale else None
    typer.echo(json.dumps(in_json(found, knobs, scaled)) if as_json else as_text(found, knobs, scaled))
