"""Prefect UI: a progress bar while a stage runs, a page per artifact that links to others, and one with all of a run.

Prefect is imported where it is called: it takes seconds, and only runs that show themselves in it pay.
"""

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from infuser_core import faults
from infuser_core.lineage.graph import Graph, graph_of
from infuser_core.store import tables
from infuser_core.store.catalogue import Catalogue
from infuser_core.store.recipe import ArtifactRef, Recipe, Record
from infuser_core.store.store import Store
from tasks.run import Execution, Run, unpublish

_FIRST = 0.5
_EVERY = 2.0
_PREVIEW = 5
_AT_ONCE = 100
"""Pages that one request asks for: the server answers with 200 versions at most."""

Pages = Mapping[str, UUID]
"""Artifact key to the page it has on this process's server."""
_pages: dict[str, UUID] = {}


class Ticker:
    """Receives a phase's progress: terminal, Prefect progress artifact, and the crash points of tests."""

    def __init__(self, run: Execution, recipe: Recipe) -> None:
        self._run = run
        self._recipe = recipe
        self._due = time.monotonic() + _FIRST
        self._artifact: UUID | None = None

    def __call__(self, done: int, total: int, tokens: int) -> None:
        faults.point(f"{self._recipe.phase}:inside")
        self._run.console.progress(done, total, tokens)
        if self._run.published and time.monotonic() >= self._due:
            self._publish(100.0 * done / max(1, total))
            self._due = time.monotonic() + _EVERY

    def finish(self) -> None:
        """The stage is done."""
        if self._artifact is not None and self._run.published:
            self._publish(100.0)

    def _publish(self, percent: float) -> None:
        from prefect.artifacts import create_progress_artifact, update_progress_artifact

        with _view_of(self._run):
            if self._artifact is None:
                key = artifact_key(self._run.name, self._recipe.phase, "progress")
                text = title(self._recipe.phase, self._recipe.iteration)
                created: Any = create_progress_artifact(progress=percent, key=key, description=text)
                self._artifact = created
            else:
                update_progress_artifact(artifact_id=self._artifact, progress=percent)


@contextmanager
def _view_of(run: Execution) -> Iterator[None]:
    """Publishing inside may fail: then the rest of the run shows nothing, and goes on."""
    import httpx

    try:
        yield
    except httpx.HTTPError as error:
        unpublish(run)
        run.console.say(f"the Prefect server was lost, the run continues without it: {' '.join(str(error).split())}")


def artifact_key(*parts: str) -> str:
    """A Prefect artifact key: lower case, digits, dashes."""
    return "-".join(parts).lower().replace("_", "-").replace(".", "-")


def title(phase: str, iteration: int) -> str:
    """A stage in words."""
    return f"{phase}, iteration {iteration}" if iteration >= 0 else phase


def artifact_page(store: Store, ref: ArtifactRef, *, users: Sequence[ArtifactRef] = ()) -> str:
    """Markdown page of an artifact; `users` are artifacts made from it, where known."""
    manifest = store.manifest(ref)
    recipe = manifest.recipe
    lines = [f"# {title(ref.kind, recipe['iteration'])}", "", f"`{ref.id}`, made in {manifest.seconds:.2f} s", ""]
    lines += [f"- **{name}**: {_plain(value)}" for name, value in manifest.summary.items()]
    lines += [f"- **{name}**: {_plain(facts)}" for name, facts in manifest.machine.items()]
    for name, count in manifest.rows.items():
        rows = tables.head(store.path(ref, f"{name}.parquet"), _PREVIEW)
        lines += ["", f"## {name} ({count} rows)", "", markdown_table(rows) if rows else "no rows", ""]
        lines += [f"`infuser sql \"select * from {name} where artifact_key = '{ref.key}'\"`"]
    lines += ["", "## Made from", ""]
    inputs = recipe["inputs"].items()
    lines += [f"- {name}: `{identity}`" for name, identity in inputs] or ["- nothing but its configuration"]
    if users:
        lines += ["", "## Used by", "", *[f"- `{user.id}`" for user in users]]
    lines += ["", "## Recipe", "", "```json", json.dumps(recipe, indent=1, sort_keys=True), "```"]
    return "\n".join(lines)


def markdown_table(rows: Sequence[dict[str, Any]], *, width: int = 60) -> str:
    """A Markdown table of a few rows, long values cut."""
    names = list(rows[0])
    body = ["| " + " | ".join(_cell(row[name], width) for name in names) + " |" for row in rows]
    return "\n".join(["| " + " | ".join(names) + " |", "|" + "---|" * len(names), *body])


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_plain(item)}" for name, item in value.items())
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _cell(value: Any, width: int) -> str:
    text = _plain(value)
    text = text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")
    return text if len(text) <= width else text[: width - 3] + "..."


def link(key: str, pages: Pages) -> str:
    """A Markdown link to an artifact's page; its bare key where the server has none."""
    return f"[{key}](/artifacts/artifact/{pages[key]})" if key in pages else f"`{key}`"


def show_page(run: Execution, ref: ArtifactRef) -> None:
    """Publish an artifact's page, with links to the pages of what it was made from."""
    with _view_of(run):
        _show_page(run, ref)


def _show_page(run: Execution, ref: ArtifactRef) -> None:
    from prefect.artifacts import create_markdown_artifact

    recipe = run.store.manifest(ref).recipe
    inputs = {name: identity.split("@")[0] for name, identity in recipe["inputs"].items()}
    pages = _published(inputs.values())
    lines = [f"- {name}: {link(key, pages)}" for name, key in inputs.items()]
    head, facts, rest = artifact_page(run.store, ref).split("\n\n", 2)
    links = "\n".join(lines) or "nothing but its configuration"
    found = create_markdown_artifact(
        key=artifact_key(ref.key),
        markdown="\n\n".join([head, facts, "## Upstream pages", links, "## Facts", rest]),
        description=f"{title(ref.kind, recipe['iteration'])} of run {run.name}; see `infuser why {ref.key}`",
    )
    assert isinstance(found, UUID)
    _pages[ref.key] = found


def show_lineage(run: Run) -> None:
    """Publish the run's graph as one page, if anything ran: every artifact by iteration, with links to the pages."""
    if not any(entry.state == "ran" for entry in run.journal.last_attempt()):
        return
    from prefect.artifacts import create_markdown_artifact

    graph = graph_of(Catalogue(run.store.root), run.name)
    said = f"what was made from what in run {run.name}; `infuser why {run.name} --graph --html FILE` draws it"
    with _view_of(run):
        page = lineage_page(graph, _published(graph.records))
        create_markdown_artifact(key=artifact_key(run.name, "lineage"), markdown=page, description=said)


def _published(keys: Iterable[str]) -> Pages:
    """Pages of these artifacts on the server, whichever attempt published them."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterKey

    unknown = {artifact_key(key): key for key in keys if key not in _pages}
    names = sorted(unknown)
    with get_client(sync_client=True) as client:
        for start in range(0, len(names), _AT_ONCE):
            wanted = ArtifactFilter(key=ArtifactFilterKey(any_=names[start : start + _AT_ONCE]))
            for found in client.read_artifacts(artifact_filter=wanted):
                _pages[unknown[str(found.key)]] = found.id
    return _pages


def lineage_page(graph: Graph, pages: Pages) -> str:
    """Markdown: a table per iteration, what stands outside the loop first."""
    iterations: dict[int, list[Record]] = {}
    for record in graph.records.values():
        iterations.setdefault(record.iteration, []).append(record)
    lines = [f"# Lineage of {graph.run}", "", f"{len(graph.records)} artifacts; each links to its page.", ""]
    for iteration, records in sorted(iterations.items()):
        heading = f"Iteration {iteration}" if iteration >= 0 else "Outside the loop"
        lines += [f"## {heading}", "", *_table(graph, records, pages), ""]
    return "\n".join(lines)


def _table(graph: Graph, records: Sequence[Record], pages: Pages) -> list[str]:
    lines = ["| phase | artifact | made from | used by | seconds |", "|---|---|---|---|---|"]
    for record in records:
        sources = ", ".join(f"{name} {link(key, pages)}" for name, key in graph.inputs(record.key).items())
        users = ", ".join(sorted({user.phase for user in graph.users(record.key)}))
        cells = [record.phase, link(record.key, pages), sources or "-", users or "-", f"{record.seconds:.2f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return lines
