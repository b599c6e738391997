"""Commands that inspect a run: its stages, result, artifacts, data and lineage, and its difference from another run."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli.options import AsJson, Html, RunName, Verbose, note_latest, show, write_page
from infuser_core import settings
from infuser_core.errors import UsageError, quantity
from infuser_core.store import runs
from infuser_core.store.journal import Journal
from infuser_core.terminal import format_rows, num_visible_rows, printable, shorten

if TYPE_CHECKING:
    from infuser_core.results.lineage.progress import AttemptPart
    from infuser_core.store.journal import Entry

InRun = Annotated[str | None, typer.Option("--run", help="Run to look in; by default all, the latest first.")]


def list_runs(as_json: AsJson = False) -> None:
    """List all runs: state, iterations, accuracy, size, origin."""
    from infuser_core.results.lineage import progress
    from infuser_core.store.verify import format_size

    summaries, damage = progress.summaries(settings.store_root())
    rows = [
        {
            "run": summary.run,
            "created": summary.created[:16].replace("T", " "),
            "state": shorten(summary.state),
            "iterations": None if summary.iterations is None else f"{summary.iterations_done}/{summary.iterations}",
            "accuracy": _accuracy(summary.score),
            "size": None if summary.bytes is None else format_size(summary.bytes),
            "origin": summary.forked_from,
        }
        for summary in summaries
    ]
    if rows or as_json:
        show([asdict(summary) for summary in summaries], lambda: format_rows(rows, width=100), as_json=as_json)
    elif not damage:
        typer.echo(f"no runs yet in {settings.store_root()}: start one with `infuser run nano`", err=True)
    for error in damage:
        raise error


def status(
    run: RunName = None,
    last: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Show the last N iterations; by default as many as fit into the window."),
    ] = None,
    stages: Annotated[
        bool, typer.Option("--stages", help="List every stage, with the key of its artifact, instead of iterations.")
    ] = False,
    digest: Annotated[
        bool,
        typer.Option("--digest", help="Print a digest of the run; runs with equal results have equal digests."),
    ] = False,
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> None:
    """Show a run's stages and accuracies, by iteration.

    Of the latest attempt: what ran and what was cached.
    """
    from infuser_core.results.lineage import progress
    from infuser_core.results.lineage.attempts import state_of

    root = settings.store_root()
    name = runs.find_method(root, run)
    if digest:
        _print_digests(root, name, verbose=verbose, as_json=as_json)
        return
    state = state_of(root, name)
    parts = progress.parts_of(root, name, state=state)
    shown_parts = parts[-(last or (len(parts) if as_json else num_visible_rows(len(parts)))) :]
    entries = [entry for part in shown_parts for entry in part.stages]
    facts = {
        "run": name,
        "state": state,
        "parts": [part.to_json() for part in shown_parts],
        "stages": [{field: getattr(entry, field) for field in entry.__dataclass_fields__} for entry in entries],
    }
    rows = [_stage_row(entry) for entry in entries] if stages else [_iteration_row(part) for part in shown_parts]
    earlier = [part for part in parts if part not in shown_parts]
    left_out = f"\n{len(earlier)} earlier lines: --last {len(parts)}" if earlier else ""
    trend = progress.describe_trend(parts)
    text = f"{name}: {state}\n{format_rows(rows)}{trend}{left_out}{note_latest(root, run, name, 'status')}"
    show(facts, text, as_json=as_json)


def _stage_row(entry: "Entry") -> dict[str, Any]:
    return {
        "phase": entry.phase,
        "iteration": entry.iteration if entry.iteration >= 0 else None,
        "state": entry.state,
        "seconds": f"{entry.seconds:.2f}",
        "rows": entry.rows,
        "key": entry.key,
    }


def _iteration_row(part: "AttemptPart") -> dict[str, Any]:
    return {
        "iteration": f"after {part.part}" if part.is_test else part.part,
        "state": part.state,
        "ran": part.ran,
        "cached": part.cached,
        "seconds": f"{part.seconds:.2f}",
        "accuracy": _accuracy(part.accuracy),
    }


def _accuracy(value: float | None) -> str | None:
    return None if value is None else f"{value:.3f}"


def _print_digests(root: Path, name: str, *, verbose: bool, as_json: bool) -> None:
    """Print the digest of the run, and if `verbose` of each artifact; they do not depend on times, hosts and paths."""
    from infuser_core.system.sealed import digest_of

    lines = sorted({f"{entry.phase} {entry.key} {entry.digest}" for entry in Journal(root, name).latest()})
    total = digest_of(lines)
    more = lines if verbose else [f"{quantity(len(lines), 'artifact')}: --verbose"]
    show({"run": name, "digest": total, "artifacts": lines}, "\n".join([f"run {total}", *more]), as_json=as_json)


def result(run: RunName = None, as_json: AsJson = False) -> None:
    """Show a run's benchmark accuracies, before and after training.

    Of the anchor and of the selected checkpoint, with warnings about the run.
    """
    from infuser_core.results.lineage import outcome

    root = settings.store_root()
    name = runs.find_method(root, run)
    facts = outcome.result(root, name) if as_json else None
    note = note_latest(root, run, name, "result")
    show(facts, lambda: f"{outcome.describe_result(root, name)}{note}", as_json=as_json)


def show_artifact(
    artifact: Annotated[str, typer.Argument(help="Key or id of an artifact, or the start of one.")],
) -> None:
    """Show an artifact: rows, recipe, inputs, users."""
    from infuser_core.results.lineage.markdown import artifact_page
    from infuser_core.store.catalogue import Catalogue
    from infuser_core.store.store import Store

    store = Store(settings.store_root())
    ref = store.ref(artifact)
    if ref is None:
        hint = "`infuser status --stages` lists the keys of a run's artifacts"
        raise UsageError(f"no artifact {artifact}", hint=hint)
    users = [record for record in Catalogue(store.root).records_of_phase() if ref.id in record.inputs.values()]
    typer.echo(printable(artifact_page(store, store.manifest(ref), users=users)))


def sql(
    statement: Annotated[str, typer.Argument(help="A DuckDB statement over the store's views; see docs/sql.md.")],
    run: Annotated[str | None, typer.Option(help="Only this run's rows.")] = None,
    unsafe: Annotated[
        bool, typer.Option("--unsafe", help="Also write, attach and read other files: DuckDB without limits.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Query questions, rollouts, scores and updates with SQL.

    Of all runs and iterations; documents, too.
    """
    from infuser_core.store.store import Store
    from infuser_core.store.views import Lens

    root = settings.store_root()
    lens = Lens(Store(root), runs=None if run is None else [runs.find_run(root, run)])
    try:
        rows = lens.query(statement) if unsafe else lens.query_untrusted(statement)
    finally:
        lens.close()
    show(rows, lambda: format_rows(rows), as_json=as_json)


def why(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="ID",
            help="Run (the latest if omitted), question, rollout, document, source, artifact key or id, "
            "RUN@ITERATION, RUN/BENCHMARK, RUN/BENCHMARK/QUESTION.",
        ),
    ] = None,
    run: InRun = None,
    graph: Annotated[bool, typer.Option("--graph", help="Draw the graph of a run's artifacts instead.")] = False,
    as_json: AsJson = False,
    html: Html = None,
) -> None:
    """Explain a run, a question, an answer or a checkpoint.

    Where it comes from and what it led to; of a run, what came out of it.
    """
    if graph:
        _show_graph(name or run, html=html, as_json=as_json)
        return
    from infuser_core.results.lineage.story import to_text
    from infuser_core.results.lineage.why import why as ask

    root = settings.store_root()
    story = ask(root, name or runs.find_method(root, run), run=run)
    latest = note_latest(root, name or run, story.run, "why")
    if html is not None:
        from infuser_core.results.lineage.pages import to_html

        write_page(html, to_html(story))
    if as_json or html is None:
        show(story.to_json(), lambda: f"{to_text(story)}{latest}", as_json=as_json)


def _show_graph(run: str | None, *, html: Path | None, as_json: bool) -> None:
    """Print the lineage graph of a run, with iterations as columns and phases as rows."""
    from infuser_core.results.lineage.graph import graph_of
    from infuser_core.results.lineage.pages import graph_html, graph_json, graph_text
    from infuser_core.store.catalogue import Catalogue

    root = settings.store_root()
    graph = graph_of(Catalogue(root), runs.find_run(root, run))
    if html is not None:
        write_page(html, graph_html(graph))
    if as_json or html is None:
        show(graph_json(graph), lambda: graph_text(graph), as_json=as_json)


def diff(
    first: Annotated[str, typer.Argument(metavar="RUN_A", help="A run.")],
    second: Annotated[str, typer.Argument(metavar="RUN_B", help="The run to compare it with.")],
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> None:
    """Compare two runs: settings, accuracies, first difference."""
    from infuser_core.results.lineage.diff import compare, text

    difference = compare(settings.store_root(), first, second)
    show(difference, lambda: text(difference, verbose=verbose), as_json=as_json)


def view(
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on loopback; 0 takes a free one.")] = 0,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the address without opening it.")] = False,
) -> None:
    """Open web pages: runs, curves, questions and their history."""
    import webbrowser

    from infuser_core.results.view.app import serve

    def announce(address: str) -> None:
        typer.echo(address)
        if not no_browser:
            webbrowser.open(address)

    serve(settings.store_root(), port=port, announce=announce)
