"""Commands that start, resume, fork, sweep, plan and rehearse runs."""

import json
import os
import re
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli.options import AsJson, Changes, RunName, Verbose, show
from infuser_core import settings
from infuser_core.errors import NUMBER, UsageError
from infuser_core.store import runs
from infuser_core.store.journal import Journal
from infuser_core.terminal import format_rows

if TYPE_CHECKING:
    from infuser_core.config.run import RunConfig

From = Annotated[
    str, typer.Option("--from", metavar="PHASE@T", help="Recompute everything from here on, even if stored.")
]
Until = Annotated[str, typer.Option("--until", metavar="PHASE@T", help="Stop after this stage.")]
Only = Annotated[str, typer.Option("--only", metavar="PHASE@T", help="Compute only this stage, from stored inputs.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would run, why, and for how long; run nothing.")]
Wait = Annotated[bool, typer.Option("--wait", help="If another process is executing the run, wait until it ends.")]
Profile = Annotated[
    int,
    typer.Option(min=0, metavar="N", help="Write traces of the first N optimizer steps and scoring micro-batches."),
]
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
    verbose: Verbose = False,
    as_json: AsJson = False,
    wait: Wait = False,
    profile: Profile = 0,
) -> None:
    """Run a configuration, from textbooks to benchmarks.

    Continues a run of the same name: stored results are not computed again.
    """
    from infuser_core.config.overlays import load
    from infuser_core.planning.preflight import preflight

    places = {"again": again, "until": until, "only": only}
    if resume_:
        run_name = next(iter(configs or []), None)
        _resume(run_name, places, dry_run=dry_run, verbose=verbose, as_json=as_json, wait=wait, profile=profile)
    elif without:
        _run_without(without, fork_ or None, dry_run=dry_run, as_json=as_json, profile=profile)
    elif fork_:
        _fork(fork_, set_ or [], name, dry_run=dry_run, verbose=verbose, as_json=as_json, profile=profile)
    elif configs:
        config = load([Path(file) for file in configs], set_ or [], seed=seed)
        preflight(config)
        name = name or config.run_name()
        _start(config, name, places, dry_run=dry_run, verbose=verbose, as_json=as_json, wait=wait, profile=profile)
    else:
        raise UsageError("no configuration to run", hint="e.g. `infuser run nano`; or --resume, --fork")


def resume(
    run: RunName = None,
    again: From = "",
    until: Until = "",
    only: Only = "",
    dry_run: DryRun = False,
    verbose: Verbose = False,
    as_json: AsJson = False,
    wait: Wait = False,
    profile: Profile = 0,
) -> None:
    """Resume a run after a crash, from its last completed stage."""
    places = {"again": again, "until": until, "only": only}
    _resume(run, places, dry_run=dry_run, verbose=verbose, as_json=as_json, wait=wait, profile=profile)


def _resume(
    run: str | None,
    places: dict[str, str],
    *,
    dry_run: bool,
    verbose: bool,
    as_json: bool,
    wait: bool,
    profile: int,
) -> None:
    from infuser_core.config.overlays import validate

    root = settings.store_root()
    name = runs.find_run(root, run)
    config = validate(runs.read_config(root, name))
    _start(config, name, places, dry_run=dry_run, verbose=verbose, as_json=as_json, wait=wait, profile=profile)


def _start(
    config: "RunConfig",
    name: str,
    places: dict[str, str],
    *,
    dry_run: bool = False,
    verbose: bool = False,
    as_json: bool = False,
    wait: bool = False,
    record: Callable[[], None] | None = None,
    profile: int = 0,
) -> None:
    """Execute a run and print its result or its last stage; with `dry_run`, print its plan."""
    from infuser_core.planning.place import parse_places

    runs.check_name(name)
    request = parse_places(**places)
    if dry_run:
        from infuser_core.store.history import load_history

        root = settings.store_root()
        from flows.plan import plan as plan_of

        plan_result = plan_of(load_history(root, name, config), name, request)
        show(plan_result.to_json(), plan_result.text(verbose=verbose), as_json=as_json)
        return
    from flows.execute import execute

    execute(config, name, wait=wait, places=places, record=record, profile=profile)
    journal = Journal(settings.store_root(), name)
    if journal.is_finished():
        from infuser_core.results.lineage.outcome import describe_result

        typer.echo(describe_result(settings.store_root(), name), err=as_json)
    else:
        from infuser_core.results.lineage.outcome import describe_warnings

        end = f"run {name} {journal.last_attempt()[-1].message}; `infuser resume {name}` continues it"
        typer.echo("\n".join([end, *describe_warnings(settings.store_root(), name)]))


def _fork(
    place: str, changes: list[str], name: str, *, dry_run: bool, verbose: bool, as_json: bool, profile: int
) -> None:
    """Record a variant of a run that shares everything before an iteration, and execute it."""
    from flows.plan import plan_fork
    from infuser_core.planning.fork import make_fork, record_fork

    origin, _, at = place.rpartition("@")
    if not origin or not re.fullmatch(NUMBER, at):
        raise UsageError(f"--fork {place}: no iteration", hint="e.g. --fork RUN@10 --set cotrain.reward.name=variance")
    root = settings.store_root() if dry_run else settings.writable_store_root()
    fork = make_fork(root, runs.find_run(root, origin), at=int(at), changes=changes, name=name)
    plan = plan_fork(fork)
    facts = {"run": fork.name, "forked_from": fork.origin, "at": fork.at, "recorded": not dry_run}
    text = f"{fork.name}: shares {fork.origin} up to iteration {fork.at}\n{plan.text(verbose=verbose)}"
    show_plan = partial(show, {**plan.to_json(), **facts}, text, as_json=as_json)
    if dry_run:
        show_plan()
        return

    def record() -> None:
        record_fork(root, fork)
        show_plan()

    _start(fork.history.latest, fork.name, {}, as_json=as_json, record=record, profile=profile)


def _run_without(name: str, run: str | None, *, dry_run: bool, as_json: bool, profile: int) -> None:
    """Show what depends on a textbook, chunk or question, and run without it, reusing everything else."""
    from flows.execute import execute
    from infuser_core.config.overlays import validate
    from infuser_core.planning.fork import record_variant
    from infuser_core.planning.undo import plan_exclusion

    root = settings.store_root()
    undo = plan_exclusion(root, run, name)
    show(undo.to_json(), undo.text(applied=not dry_run), as_json=as_json)
    if dry_run:
        return
    record = partial(record_variant, root, undo.run, undo.fork, undo.change)
    execute(validate(undo.config), undo.fork, record=record, profile=profile)
    typer.echo(f"run {undo.fork} is done: `infuser diff {undo.run} {undo.fork}` compares the two", err=as_json)


def plan(
    configs: Annotated[list[Path], typer.Argument(metavar="CONFIG...", help="YAML files or names of shipped ones.")],
    gpus: Annotated[str, typer.Option(help="8xH100, 1xRTX4090, 2x8xH100 for two nodes of eight, or cpu.")],
    set_: Changes = None,
    tokens: Annotated[
        list[str] | None, typer.Option(help="Mean length or share, e.g. solver_response=900; --json lists them.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Known model or folder with config.json, for the anchor.")] = None,
    measured: Annotated[
        str, typer.Option(help="File of `infuser rehearse --to`, or a run on the same GPUs, instead of assumptions.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Plan a run: memory per GPU, disk, hours.

    Names the settings that make it fit, and the basis of the estimated hours.
    """
    from infuser_core.config.overlays import load
    from infuser_core.memory.shape import find_shape
    from infuser_core.planning import answer
    from infuser_core.planning.setup import Setup

    shape = find_shape(model) if model else None
    setup = Setup.of(load(configs, set_ or []), gpus, shape=shape, tokens=tokens or [])
    utilisations = {}
    if measured:
        from infuser_core.planning import timings

        path = Path(measured)
        utilisations = (
            timings.read_utilisations(path)
            if path.is_file()
            else timings.run_utilisations(settings.store_root(), measured, gpus)
        )
    content = answer.plan_as_json(setup, utilisations)
    show(content, lambda: answer.plan_as_text(content), as_json=as_json)


def rehearse(
    configs: Annotated[list[Path], typer.Argument(metavar="CONFIG...", help="YAML files or names of shipped ones.")],
    gpus: Annotated[str, typer.Option(help="Show the planned memory too, e.g. 8xH100 or cpu.")] = "",
    to: Annotated[
        Path | None, typer.Option(help="With --gpus: file for the utilisations, for `infuser plan --measured`.")
    ] = None,
    set_: Changes = None,
    as_json: AsJson = False,
) -> None:
    """Try every engine once, and estimate the hours of a run.

    The model is random, the batch the longest possible. Exit code 1 if a step failed.
    """
    from infuser_core.config.overlays import load
    from infuser_core.planning.room import require_memory
    from infuser_core.planning.setup import Setup

    if to is not None and not gpus:
        raise UsageError("--to needs --gpus: a utilisation is a share of their rate", hint="e.g. --gpus 8xH100")
    require_memory(config := load(configs, set_ or []))
    setup = Setup.of(config, gpus) if gpus else None
    from tasks.rehearsal import table
    from tasks.rehearsal.steps import rehearse as start

    # Ray reports a killed rank on stdout, which is reserved for the result.
    with redirect_stdout(sys.stderr):
        lines, run = start(config)
    show(table.as_json(lines, run, setup), lambda: table.as_text(lines, run, setup), as_json=as_json)
    if to is not None and setup is not None and run is not None:
        to.write_text(table.as_yaml(run, setup), encoding="utf-8")
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
    """Run a grid of overlays and seeds, then compare the runs.

    After a crash, the same command continues.
    """
    from infuser_core.planning.sweeps import read_sweeps

    configs = read_sweeps(files, set_ or [], against=against)
    names = [config.run_name() for config in configs]
    root = settings.store_root()
    if dry_run:
        rows = [
            {"run": name, "variant": config.variant, "seed": config.seed, "done": Journal(root, name).is_finished()}
            for name, config in zip(names, configs, strict=True)
        ]
        lines = [{**row, "done": "yes" if row["done"] else "to do"} for row in rows]
        show(rows, lambda: format_rows(lines), as_json=as_json)
        return
    from flows.sweep import sweep as run_all
    from infuser_core.results.report.comparison import compare

    run_all(configs, jobs=jobs, quiet=as_json)
    typer.echo(compare(root, names, as_json=as_json, against=against))


def serve(
    port: Annotated[int, typer.Option(min=1, max=65_535, help="Port of the Prefect server and its UI.")] = 4200,
    allow_plugins: Annotated[
        bool, typer.Option("--allow-plugins", help="Parameters of a flow run may name modules from outside INFUSER.")
    ] = False,
    login: Annotated[
        bool, typer.Option("--login", help="Print a link of the running server that logs a browser in, once.")
    ] = False,
    env: Annotated[
        bool, typer.Option("--env", help='Print lines for `eval "$(...)"`, after which `prefect` finds the server.')
    ] = False,
) -> None:
    """Start Prefect's UI and the viewer, to watch and start runs.

    On loopback, with the deployment infuser/full-pipeline.
    """
    from flows import deployment

    if env:
        typer.echo(deployment.shell_lines(settings.store_root()))
    elif login:
        typer.echo(deployment.require_server(settings.store_root()).login_link())
    else:
        deployment.serve(settings.writable_store_root(), port, allow_plugins=allow_plugins)


def quickstart(
    iterations: Annotated[int, typer.Option(help="Co-training iterations.")] = 30,
    seed: Annotated[int, typer.Option(help="Random seed of both runs.")] = 42,
) -> None:
    """Run the demo: INFUSER and a control with a fixed generator.

    Both run the whole life cycle on this machine, in parallel.
    """
    from flows.quickstart import quickstart as start

    start(iterations=iterations, seed=seed)


def nano_build(
    out: Annotated[Path, typer.Argument(help="Folder for the new anchor.")],
    scale: Annotated[
        float, typer.Option(min=0.0001, max=100, help="Share of the full number of training steps.")
    ] = 1.0,
    seed: Annotated[int, typer.Option(min=0, max=4_294_967_295, help="Random seed of the build.")] = 0,
    world: Annotated[
        str, typer.Option(help="A file of infuser_core/nano/worlds; all but basic start from the shipped basic anchor.")
    ] = "basic",
) -> None:
    """Pre-train the nano anchor from scratch."""
    from infuser_core.nano.build import build_anchor

    card = build_anchor(out, steps_scale=scale, seed=seed, world=world, progress=partial(typer.echo, err=True))
    typer.echo(json.dumps(card["base_rates"], indent=2))


def nano_accuracy(
    models: Annotated[list[str], typer.Argument(metavar="MODEL...", help="Solvers, named as for eval.")],
    world: Annotated[str, typer.Option(help="Micro-world of the questions; by default the model's.")] = "",
    split: Annotated[str, typer.Option(help="train, dev, validation or test.")] = "test",
    as_json: AsJson = False,
) -> None:
    """Measure nano solvers exactly, without sampling.

    The probability of sound replies over all operand pairs of a split.
    """
    from infuser_core.evaluation.models import find_model
    from infuser_core.nano.exact import exact_accuracies

    rows: list[dict[str, Any]] = []
    for name in models:
        model = find_model(settings.store_root(), name)
        world_name = world or model.world or getattr(model.config and model.config.anchor, "world", "")
        rows.extend({"model": name, **row} for row in exact_accuracies(model.folder, world_name, split))
    show(rows, lambda: format_rows(rows), as_json=as_json)
