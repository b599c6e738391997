"""Commands that look into a run: its stages, result, artifacts, data, lineage, and how it differs from another run."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.options import AsJson, Html, RunName, show, write_page
from infuser_core import settings
from infuser_core.errors import UsageError
from infuser_core.store import runs
from infuser_core.store.journal import Journal
from infuser_core.terminal import printable

if TYPE_CHECKING:
    from infuser_core.store.recipe import ArtifactRef
    from infuser_core.store.store import Store

InRun = Annotated[str | None, typer.Option("--run", help="Run to look in; by default all, the latest first.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the `infuser` command."""
    app.command("show")(show_artifact)
    for command in (status, result, sql, why, diff):
        app.command()(command)


def status(
    run: RunName = None,
    every: Annotated[bool, typer.Option("--all", help="List all runs in the store instead.")] = False,
    digest: Annotated[
        bool,
        typer.Option(
            "--digest", help="Print the digests of the run's artifacts and of the run: equal for equal results."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the stages of a run's latest attempt: what ran, what was cached."""
    root = settings.store_root()
    if every:
        _list_runs(root, as_json=as_json)
        return
    name = runs.find_run(root, run)
    if digest:
        _print_digest(root, name, as_json=as_json)
        return
    entries = Journal(root, name).last_attempt()
    rows = [{field: getattr(entry, field) for field in entry.__dataclass_fields__} for entry in entries]
    lines = [f"{name}: {_state(root, name)}"]
    for entry in entries:
        where = f"iteration {entry.iteration}" if entry.iteration >= 0 else ""
        lines.append(
            f"{entry.phase:20} {where:14} {entry.state:7} {entry.seconds:8.2f} s {entry.rows:7d} rows  {entry.key}"
        )
    show({"run": name, "state": _state(root, name), "stages": rows}, "\n".join(lines), as_json=as_json)


def _list_runs(root: Path, *, as_json: bool) -> None:
    rows = [
        {"run": name, "state": _state(root, name), "forked_from": runs.origin_of(root, name)}
        for name in runs.list_runs(root)
    ]
    if rows or as_json:
        show(rows, "\n".join("  ".join(filter(None, row.values())) for row in rows), as_json=as_json)


def _state(root: Path, name: str) -> str:
    journal = Journal(root, name)
    if runs.is_held(root, name):
        return "running"
    if journal.is_finished():
        return "done"
    last = journal.last_attempt()
    if last and last[-1].state == "stopped":
        return last[-1].message
    failed = [entry for entry in last if entry.state == "failed"]
    return f"failed in {failed[-1].phase}: {failed[-1].message}" if failed else "interrupted"


def _print_digest(root: Path, name: str, *, as_json: bool) -> None:
    """One line per artifact and one for the run: independent of times, hosts and paths."""
    from infuser_core.sealed import digest_of

    lines = sorted({f"{entry.phase} {entry.key} {entry.digest}" for entry in Journal(root, name).latest()})
    total = digest_of(lines)
    show({"run": name, "digest": total, "artifacts": lines}, "\n".join([*lines, f"run {total}"]), as_json=as_json)


def result(run: RunName = None, as_json: AsJson = False) -> None:
    """Show a run's benchmark accuracies: the anchor beside the selected checkpoint."""
    from infuser_core.lineage import outcome

    root = settings.store_root()
    name = runs.find_run(root, run)
    facts = outcome.result(root, name) if as_json else None
    show(facts, lambda: outcome.describe_result(root, name), as_json=as_json)


def show_artifact(
    artifact: Annotated[str, typer.Argument(help="Key or id of an artifact, or the start of one.")],
) -> None:
    """Show an artifact: rows, recipe, upstream and downstream artifacts, and the SQL that opens it."""
    from infuser_core.lineage.markdown import artifact_page
    from infuser_core.store.store import Store

    store = Store(settings.store_root())
    ref = _find_artifact(store, artifact)
    users = [other for other in store.refs() if ref.id in store.manifest(other).recipe.get("inputs", {}).values()]
    typer.echo(printable(artifact_page(store, ref, users=users)))


def _find_artifact(store: "Store", name: str) -> "ArtifactRef":
    """The artifact whose key or id starts with `name`. Raises UsageError when none or several do."""
    found = [ref for ref in store.refs() if ref.id.startswith(name) or ref.key.startswith(name)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise UsageError(f"no artifact {name}", hint="`infuser status` lists the keys of a run's artifacts")
    raise UsageError(f"{len(found)} artifacts start with {name}", hint=f"e.g. {found[0].key} and {found[1].key}")


def sql(
    statement: Annotated[str, typer.Argument(help="A DuckDB statement over the store's views; see docs/sql.md.")],
    run: Annotated[str | None, typer.Option(help="Only this run's rows.")] = None,
    unsafe: Annotated[
        bool, typer.Option("--unsafe", help="Also write, attach and read other files: DuckDB without limits.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Query rollouts, questions, scores, updates and documents of all runs and iterations with SQL."""
    from infuser_core.store.store import Store
    from infuser_core.store.views import Lens
    from infuser_core.terminal import table

    root = settings.store_root()
    lens = Lens(Store(root), runs=None if run is None else [runs.find_run(root, run)])
    try:
        rows = lens.query(statement) if unsafe else lens.ask(statement)
    finally:
        lens.close()
    show(rows, lambda: table(rows), as_json=as_json)


def why(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="ID",
            help="Question, rollout, document, source, artifact key or id, RUN@ITERATION, RUN/BENCHMARK, "
            "RUN/BENCHMARK/QUESTION; with --graph, a run.",
        ),
    ] = None,
    run: InRun = None,
    graph: Annotated[bool, typer.Option("--graph", help="Draw the graph of a run's artifacts instead.")] = False,
    as_json: AsJson = False,
    html: Html = None,
) -> None:
    """Explain where a question, rollout, checkpoint, document or score comes from, and what it led to."""
    if graph:
        _graph(name or run, html=html, as_json=as_json)
        return
    if name is None:
        raise UsageError("nothing to explain", hint="name an ID, e.g. `infuser why RUN@4`; or --graph")
    from infuser_core.lineage.answer import to_text
    from infuser_core.lineage.why import why as ask

    answer = ask(settings.store_root(), name, run=run)
    if html is not None:
        from infuser_core.lineage.pages import to_html

        write_page(html, to_html(answer))
    if as_json or html is None:
        show(answer.to_json(), lambda: to_text(answer), as_json=as_json)


def _graph(run: str | None, *, html: Path | None, as_json: bool) -> None:
    """Lineage graph: the artifacts of a run, iterations as columns, phases as rows."""
    from infuser_core.lineage.pages import of_run

    view = of_run(settings.store_root(), run)
    if html is not None:
        write_page(html, view.html())
    if as_json or html is None:
        show(view.to_json(), view.text, as_json=as_json)


def diff(
    first: Annotated[str, typer.Argument(metavar="RUN_A", help="A run.")],
    second: Annotated[str, typer.Argument(metavar="RUN_B", help="The run to compare it with.")],
    as_json: AsJson = False,
) -> None:
    """Compare two runs: settings, code versions, the first artifact that differs and why, and their metrics."""
    from infuser_core.lineage.diff import compare

    found = compare(settings.store_root(), first, second)
    show(found.to_json(), found.text, as_json=as_json)
