"""Commands that say beforehand what a run will cost."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the commands to the `infuser` command."""
    app.command()(plan)


def plan(
    configs: Annotated[
        list[Path], typer.Argument(help="YAML files, merged left to right; with --calibrate, names of runs.")
    ],
    gpus: Annotated[str, typer.Option(help="8xH100, 1xRTX4090, 2x8xH100 for two nodes of eight, or cpu.")],
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
    efficiency: Annotated[
        Path | None, typer.Option(help="File of constants that --calibrate wrote, for the published runs'.")
    ] = None,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Fit the planner's constants on timings of these runs of yours.")
    ] = False,
    to: Annotated[Path | None, typer.Option(help="With --calibrate: file to write the constants to.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Forecast a run: memory per GPU, seconds per phase, bytes, GPU-hours, and what to change where it does not fit."""
    from infuser_core.capacity.advice import advice
    from infuser_core.capacity.answer import as_json as in_json
    from infuser_core.capacity.answer import as_text
    from infuser_core.capacity.asked import ask
    from infuser_core.capacity.forecast import forecast
    from infuser_core.capacity.forecast import scale as simulate
    from infuser_core.config.overlays import load

    if calibrate:
        _calibrate([str(name) for name in configs], gpus, to, as_json=as_json)
        return
    asked = ask(load(configs, set_ or []), gpus, model=model, tokens=tokens or [], disk=disk, efficiency=efficiency)
    found = forecast(asked, schedule=schedule)
    knobs = advice(asked)
    scaled = simulate(asked, schedule) if scale else None
    typer.echo(json.dumps(in_json(found, knobs, scaled)) if as_json else as_text(found, knobs, scaled))


def _calibrate(runs: list[str], gpus: str, to: Path | None, *, as_json: bool) -> None:
    from infuser_core import settings
    from infuser_core.capacity.calibrate import as_text, fitted, residuals
    from infuser_core.capacity.hardware import as_yaml, calibrated
    from infuser_core.planning.timings import observed

    found = [observed(settings.store_root(), name, gpus) for name in runs]
    constants = fitted(found, calibrated())
    rows = residuals(found, constants)
    if to is not None:
        to.write_text(as_yaml(constants, origin=f"fitted on {', '.join(runs)} on {gpus}"), encoding="utf-8")
    said = {"constants": asdict(constants), "residuals": [{**asdict(row), "error": row.error} for row in rows]}
    typer.echo(json.dumps(said) if as_json else as_text(constants, calibrated(), rows))
