"""Lineage in the Prefect UI: pages of artifacts that link to each other, and one page per run with all of them."""

from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from prefect.artifacts import create_markdown_artifact
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterKey

from infuser_core.lineage.graph import Graph, graph_of
from infuser_core.store.catalogue import Catalogue, Record
from infuser_core.store.recipe import ArtifactRef
from tasks.display import artifact_key, artifact_page, title
from tasks.run import Run

_AT_ONCE = 100
"""Pages that one request asks for: the server answers with 200 versions at most."""

Pages = Mapping[str, UUID]
"""Artifact key to the page it has on this process's server."""
_pages: dict[str, UUID] = {}


def page_key(key: str) -> str:
    """Prefect key of an artifact's page: one per artifact, so that other pages can point to it."""
    return artifact_key(key)


def link(key: str, pages: Pages) -> str:
    """A Markdown link to an artifact's page; its bare key where the server has none."""
    return f"[{key}](/artifacts/artifact/{pages[key]})" if key in pages else f"`{key}`"


def show_page(run: Run, ref: ArtifactRef) -> None:
    """Publish an artifact's page, with links to the pages of what it was made from."""
    recipe = run.store.manifest(ref).recipe
    inputs = {name: identity.split("@")[0] for name, identity in recipe["inputs"].items()}
    pages = _published(inputs.values())
    lines = [f"- {name}: {link(key, pages)}" for name, key in inputs.items()]
    head, facts, rest = artifact_page(run.store, ref).split("\n\n", 2)
    links = "\n".join(lines) or "nothing but its configuration"
    found = create_markdown_artifact(
        key=page_key(ref.key),
        markdown="\n\n".join([head, facts, "## Upstream pages", links, "## Facts", rest]),
        description=f"{title(ref.kind, recipe['iteration'])} of run {run.name}; see `infuser why {ref.key}`",
    )
    assert isinstance(found, UUID)
    _pages[ref.key] = found


def show_lineage(run: Run) -> None:
    """Publish the run's graph as one page, if anything ran: every artifact by iteration, with links to the pages."""
    if not any(entry.state == "ran" for entry in run.journal.last_attempt()):
        return
    graph = graph_of(Catalogue(run.store.root), run.name)
    create_markdown_artifact(
        key=artifact_key(run.name, "lineage"),
        markdown=lineage_page(graph, _published(graph.records)),
        description=f"what was made from what in run {run.name}; `infuser why {run.name} --graph --html FILE` draws it",
    )


def _published(keys: Iterable[str]) -> Pages:
    """Pages of these artifacts on the server, whichever attempt published them."""
    unknown = {page_key(key): key for key in keys if key not in _pages}
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
