"""Commands that start, resume, fork and sweep runs, and forecast their cost."""

import json
import os
import re
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli.options import AsJson, Changes, RunName, show
from infuser_core import settings
from infuser_core.errors import NUMBER, UsageError
from infuser_core.store import runs
from infuser_core.store.journal import Journal
from infuser_core.terminal import table

if TYPE_CHECKING:
    from infuser_core.config.run import RunConfig

From = Annotated[
    str, typer.Option("--from", metavar="PHASE@T", help="Compute everything from here on again, even if stored.")
]
Until = Annotated[str, typer.Option("--until", metavar="PHASE@T", help="Stop after this stage.")]
Only = Annotated[str, typer.Option("--only", metavar="PHASE@T", help="Compute this stage alone, from stored inputs.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would run, why, and for how long; run nothing.")]
Wait = Annotated[bool, typer.Option("--wait", help="If another process is executing the run, wait until it ends.")]
Seed = Annotated[int | None, typer.Option(help="Random seed of the run.")]
Name = Annotated[str, typer.Option(help="Name of the run; derived from its settings by default.")]


def run(
    configs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[CONFIG]...",
            help="YAML files or names of shipped ones, merged left to right; with --resume, a run.",
        ),
    ] = None,
    set_: Changes = None,
    name: Name = "",
    seed: Seed = None,
    again: From = "",
    until: Until = "",
    only: Only = "",
    resume_: Annotated[bool, typer.Option("--resume", help="Resume a run: the same as `infuser resume`.")] = False,
    fork_: Annotated[
        str, typer.Option("--fork", metavar="RUN@T", help="Share this run's work up to iteration T; see --set.")
    ] = "",
    without: Annotated[
        str,
        typer.Option(metavar="ID", help="Leave a textbook, chunk or question out of the --fork run, or the latest."),
    ] = "",
    dry_run: DryRun = False,
    as_json: AsJson = False,
    wait: Wait = False,
) -> None:
    """Run the whole life cycle, or continue it: nothing that is in the store is computed again."""
    from infuser_core.config.overlays import load
    from infuser_core.planning.preflight import preflight

    asked = {"again": again, "until": until, "only": only}
    if resume_:
        _resume(next(iter(configs or []), None), asked, dry_run=dry_run, as_json=as_json, wait=wait)
    elif without:
        _run_without(without, fork_ or None, dry_run=dry_run, as_json=as_json)
    elif fork_:
        _fork(fork_, set_ or [], name, dry_run=dry_run, as_json=as_json)
    elif configs:
        config = load([Path(file) for file in configs], set_ or [], seed=seed)
        preflight(config)
        _start(config, name or config.run_name(), asked, dry_run=dry_run, as_json=as_json, wait=wait)
    else:
        raise UsageError("no configuration to run", hint="e.g. `infuser run nano`; or --resume, --fork")


def resume(
    run: RunName = None,
    again: From = "",
    until: Until = "",
    only: Only = "",
    dry_run: DryRun = False,
    as_json: AsJson = False,
    wait: Wait = False,
) -> None:
    """Resume a run after a crash, from its last completed stage."""
    asked = {"again": again, "until": until, "only": only}
    _resume(run, asked, dry_run=dry_run, as_json=as_json, wait=wait)


def _resume(run: str | None, asked: dict[str, str], *, dry_run: bool, as_json: bool, wait: bool) -> None:
    from infuser_core.config.overlays import validate

    root = settings.store_root()
    name = runs.find_run(root, run)
    config = validate(runs.read_config(root, name))
    _start(config, name, asked, dry_run=dry_run, as_json=as_json, wait=wait)


def _start(
    config: "RunConfig",
    name: str,
    asked: dict[str, str],
    *,
    dry_run: bool = False,
    as_json: bool = False,
    wait: bool = False,
    record: Callable[[], None] | None = None,
) -> None:
    """Plan a run; or execute it, and print its result or where it stopped."""
    from infuser_core.planning.place import asked_of

    runs.check_name(name)
    places = asked_of(**asked)
    if dry_run:
        from infuser_core.planning.fork import history_of

        root = settings.store_root()
        from flows.plan import plan as plan_of

        found = plan_of(history_of(root, name, config), name, places)
        show(found.to_json(), found.text, as_json=as_json)
        return
    from flows.execute import execute

    execute(config, name, wait=wait, asked=asked, record=record)
    journal = Journal(settings.store_root(), name)
    if journal.is_finished():
        from infuser_core.lineage.outcome import describe_result

        typer.echo(describe_result(settings.store_root(), name), err=as_json)
    else:
        typer.echo(f"run {name} {journal.last_attempt()[-1].message}; `infuser resume {name}` continues it")


def _fork(place: str, changes: list[str], name: str, *, dry_run: bool, as_json: bool) -> None:
    """Record a variant of a run that shares everything before an iteration, and execute it."""
    from flows.plan import plan_fork
    from infuser_core.planning.fork import fork_of, write

    origin, _, at = place.rpartition("@")
    if not origin or not re.fullmatch(NUMBER, at):
        raise UsageError(f"--fork {place}: no iteration", hint="e.g. --fork RUN@10 --set cotrain.reward.name=variance")
    root = settings.store_root() if dry_run else settings.writable_store_root()
    planned = fork_of(root, runs.find_run(root, origin), at=int(at), changes=changes, name=name)
    plan = plan_fork(planned)
    facts = {"run": planned.name, "forked_from": planned.origin, "at": planned.at, "recorded": not dry_run}
    text = f"{planned.name}: shares {planned.origin} up to iteration {planned.at}\n{plan.text()}"
    say = partial(show, {**plan.to_json(), **facts}, text, as_json=as_json)
    if dry_run:
        say()
        return

    def record() -> None:
        write(root, planned)
        say()

    _start(planned.history.latest, planned.name, {}, as_json=as_json, record=record)


def _run_without(name: str, run: str | None, *, dry_run: bool, as_json: bool) -> None:
    """Show what depends on a textbook, chunk or question, and run without it, reusing everything else."""
    from flows.execute import execute
    from infuser_core.config.overlays import validate
    from infuser_core.lineage.undo import plan
    from infuser_core.planning.fork import record_variant

    root = settings.store_root()
    found = plan(root, run, name)
    show(found.to_json(), found.text(applied=not dry_run), as_json=as_json)
    if dry_run:
        return
    record = partial(record_variant, root, found.run, found.fork, found.change)
    execute(validate(found.config), found.fork, record=record)
    typer.echo(f"run {found.fork} is done: `infuser diff {found.run} {found.fork}` compares the two", err=as_json)


def plan(
    configs: Annotated[
        list[Path],
        typer.Argument(
            metavar="CONFIG...", help="YAML files or names of shipped ones; with --calibrate, names of runs."
        ),
    ],
    gpus: Annotated[str, typer.Option(help="8xH100, 1xRTX4090, 2x8xH100 for two nodes of eight, or cpu.")],
    set_: Changes = None,
    tokens: Annotated[
        list[str] | None, typer.Option(help="Mean length or share, e.g. solver_response=900; --json lists them.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Known model or folder with config.json, for the anchor.")] = None,
    disk: Annotated[float, typer.Option(min=0.01, max=1_000_000, help="Speed of the store's disk, GB/s.")] = 3.0,
    scale: Annotated[bool, typer.Option("--scale", help="Simulate 8 to 512 GPUs and say where scaling stops.")] = False,
    efficiency: Annotated[
        Path | None, typer.Option(help="File of constants written by --calibrate, instead of the published ones.")
    ] = None,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Fit the planner's constants to timings of your own runs.")
    ] = False,
    to: Annotated[Path | None, typer.Option(help="With --calibrate: file to write the constants to.")] = None,
    as_json: AsJson = False,
) -> None:
    """Forecast a run: memory per GPU, seconds per phase, bytes, GPU-hours, and which settings make it fit."""
    from infuser_core.capacity.advice import advice
    from infuser_core.capacity.answer import as_json as in_json
    from infuser_core.capacity.answer import as_text
    from infuser_core.capacity.asked import Asked
    from infuser_core.capacity.forecast import forecast
    from infuser_core.capacity.forecast import scale as simulate
    from infuser_core.config.overlays import load
    from infuser_core.memory.hardware import from_file
    from infuser_core.memory.shape import named

    if calibrate:
        _calibrate([str(name) for name in configs], gpus, to, as_json=as_json)
        return
    asked = Asked.of(
        load(configs, set_ or []),
        gpus,
        shape=named(model) if model else None,
        tokens=tokens or [],
        disk=disk,
        efficiency=from_file(efficiency) if efficiency else None,
    )
    found = forecast(asked)
    knobs = advice(asked)
    scaled = simulate(asked) if scale else None
    show(in_json(found, knobs, scaled), lambda: as_text(found, knobs, scaled), as_json=as_json)


def _calibrate(names: list[str], gpus: str, to: Path | None, *, as_json: bool) -> None:
    from infuser_core.memory.hardware import as_yaml, calibrated
    from infuser_core.planning.calibrate import as_text, fitted, observed, residuals

    found = [observed(settings.store_root(), name, gpus) for name in names]
    constants = fitted(found, calibrated())
    rows = residuals(found, constants)
    if to is not None:
        to.write_text(as_yaml(constants, origin=f"fitted on {', '.join(names)} on {gpus}"), encoding="utf-8")
    facts = {"constants": asdict(constants), "residuals": [{**asdict(row), "error": row.error} for row in rows]}
    show(facts, lambda: as_text(constants, calibrated(), rows), as_json=as_json)


def rehearse(
    configs: Annotated[list[Path], typer.Argument(metavar="CONFIG...", help="YAML files or names of shipped ones.")],
    gpus: Annotated[str, typer.Option(help="Compare speeds with the planner's forecast, e.g. 8xH100 or cpu.")] = "",
    to: Annotated[
        Path | None, typer.Option(help="With --gpus: file for the constants that the timings give `infuser plan`.")
    ] = None,
    set_: Changes = None,
    as_json: AsJson = False,
) -> None:
    """Start every engine once with a random model and the longest batch: what fails or is slow, before a run is paid.

    Exit code 1 where a step failed.
    """
    from infuser_core.config.overlays import load
    from infuser_core.planning.room import require_memory

    require_memory(config := load(configs, set_ or []))
    from tasks.rehearsal import table
    from tasks.rehearsal.steps import rehearse as start

    # Ray tells of the rank that is killed, on stdout, which is the caller's.
    with redirect_stdout(sys.stderr):
        lines, forecast, refit = start(config, gpus)
    told = {**table.as_json(lines, forecast), "refit": asdict(refit) if refit else {}}
    show(told, lambda: "\n".join([table.as_text(lines, forecast), *([refit.text] if refit else [])]), as_json=as_json)
    if to is not None and refit is not None:
        from infuser_core.memory.hardware import as_yaml

        to.write_text(as_yaml(refit.constants, origin=f"fitted on a rehearsal on {gpus}"), encoding="utf-8")
    if any(line.status == table.FAILED for line in lines):
        raise typer.Exit(1)


def sweep(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="Sweep files or names of shipped ones: base configurations and axes."),
    ],
    jobs: Annotated[int, typer.Option(min=1, max=4096, help="Runs at a time, one process each.")] = os.cpu_count() or 1,
    set_: Changes = None,
    against: Annotated[str, typer.Option(help="Compare with this variant only, e.g. nano-infuser.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the runs and stop.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run every combination of a grid of overlays, then compare them. After a crash, the same command continues."""
    from infuser_core.planning.sweeps import read_all

    configs = read_all(files, set_ or [], against=against)
    names = [config.run_name() for config in configs]
    root = settings.store_root()
    if dry_run:
        rows = [
            {"run": name, "variant": each.variant, "seed": each.seed, "done": Journal(root, name).is_finished()}
            for name, each in zip(names, configs, strict=True)
        ]
        told = [{**row, "done": "yes" if row["done"] else "to do"} for row in rows]
        show(rows, lambda: table(told), as_json=as_json)
        return
    from flows.sweep import sweep as run_all
    from infuser_core.report.comparison import compare

    run_all(configs, jobs=jobs, quiet=as_json)
    typer.echo(compare(root, names, as_json=as_json, against=against))


def serve(
    port: Annotated[int, typer.Option(min=1, max=65_535, help="Port of the Prefect server and its UI.")] = 4200,
    allow_plugins: Annotated[
        bool, typer.Option("--allow-plugins", help="Parameters of a flow run may name modules from outside INFUSER.")
    ] = False,
) -> None:
    """Start Prefect's server and UI on loopback, and serve the deployment infuser/full-pipeline."""
    from flows.deployment import serve as start

    start(settings.writable_store_root(), port, allow_plugins=allow_plugins)


def quickstart(
    iterations: Annotated[int, typer.Option(help="Co-training iterations.")] = 30,
    seed: Annotated[int, typer.Option(help="Random seed of both runs.")] = 42,
) -> None:
    """Run the whole life cycle on this machine: INFUSER and, beside it, the fixed-generator control."""
    from flows.quickstart import quickstart as start

    start(iterations=iterations, seed=seed)


def nano_build(
    out: Annotated[Path, typer.Argument(help="Folder for the new anchor.")],
    scale: Annotated[
        float, typer.Option(min=0.0001, max=100, help="Share of the full number of training steps.")
    ] = 1.0,
    seed: Annotated[int, typer.Option(min=0, max=4_294_967_295, help="Random seed of the build.")] = 0,
    world: Annotated[
        str, typer.Option(help="basic, hard, strong, wide, composed or broad; the others start from the basic one.")
    ] = "basic",
) -> None:
    """Pre-train the nano anchor from scratch."""
    from infuser_core.nano.build import build_anchor

    card = build_anchor(out, steps_scale=scale, seed=seed, world=world, progress=partial(typer.echo, err=True))
    typer.echo(json.dumps(card["base_rates"], indent=2))


def nano_accuracy(
    models: Annotated[list[str], typer.Argument(metavar="MODEL...", help="Solvers, named as for eval.")],
    world: Annotated[str, typer.Option(help="Micro-world to ask from; by default the model's own.")] = "",
    split: Annotated[str, typer.Option(help="train, dev, validation or test.")] = "test",
    as_json: AsJson = False,
) -> None:
    """Measure solvers without sampling: probability of sound replies over all operand pairs of a split."""
    from infuser_core.evaluation.models import find_model
    from infuser_core.nano.exact import measured

    rows: list[dict[str, Any]] = []
    for name in models:
        model = find_model(settings.store_root(), name)
        known = world or model.world or getattr(model.config and model.config.anchor, "world", "")
        rows.extend({"model": name, **row} for row in measured(model.folder, known, split))
    show(rows, lambda: table(rows), as_json=as_json)
