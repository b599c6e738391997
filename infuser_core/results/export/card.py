"""Model card (README) of an exported checkpoint, from facts that the store holds."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined

from infuser_core.config.phase_table import GRADINGS, UPDATES, Phase
from infuser_core.config.run import RunConfig
from infuser_core.config.sources import FolderAnchor, HubAnchor
from infuser_core.evaluation.anchors import anchor_folder
from infuser_core.results.lineage.graph import Graph
from infuser_core.schemas import BenchmarkScore, Source, Update
from infuser_core.store.recipe import Record
from infuser_core.store.store import Store

_ROLES = {
    "solver": "answers questions by reasoning step by step",
    "generator": "writes questions with reference answers from passages of textbooks",
}


def card(
    graph: Graph,
    store: Store,
    record: Record,
    config: RunConfig,
    *,
    role: str,
    iteration: int,
    files: Mapping[str, str],
    adapter: bool = False,
    name: str = ".",
) -> str:
    """Model card of a run's checkpoint as Markdown; `files`: sha256 of exported files; `name`: what a user loads."""
    chain = graph.trained(record.key)
    updates = [record for record in chain if record.phase in UPDATES]
    steps = [row for record in updates for row in store.rows(record.ref, "updates", Update) if not row.skipped]
    sources = textbooks(graph, store) if updates and not config.cotrain.dev_only else []
    return render(
        "card.md",
        name=name,
        metadata=_metadata(config, role, adapter=adapter),
        adapter=base_name(config) if adapter else "",
        run=graph.run,
        role=role,
        does=_ROLES[role],
        iteration=iteration,
        config=config,
        base=base_text(config),
        scores=_scores(graph, store, record),
        updates=len(updates),
        steps=steps,
        questions=_questions(graph, updates),
        trained=config.cotrain.solver if role == "solver" else config.cotrain.generator,
        sources=sources,
        identities={
            "checkpoint": record.id,
            "anchor": chain[0].id,
            "base model's files": str(store.manifest(chain[0].ref).recipe["config"].get("model", "")),
            "settings": config.digest(),
            **files,
        },
    )


def render(template: str, *, sources: Sequence[Source], **values: Any) -> str:
    """Render a card from its template; `sources` are the textbooks that it lists."""
    environment = Environment(
        loader=PackageLoader("infuser_core.results.export"),
        # A Markdown file: cells are escaped one by one.
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters["row"] = _row
    licences = Counter(source.licence or "not stated" for source in sources).most_common()
    return environment.get_template(template).render(sources=sources, licences=licences, **values)


def _row(cells: Sequence[object]) -> str:
    """Join cells to a line of a Markdown table."""
    plain = (" ".join(str(cell).replace("|", "\\|").split()) for cell in cells)
    return f"| {' | '.join(plain)} |"


def _metadata(config: RunConfig, role: str, *, adapter: bool) -> str:
    values: dict[str, Any] = {
        "library_name": "peft" if adapter else "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["infuser", role, "reinforcement-learning"],
        "license": "other",
        "license_name": "see-base-model",
    }
    if isinstance(config.anchor, HubAnchor):
        values["base_model"] = config.anchor.repo
    return yaml.safe_dump(values, sort_keys=False)


def base_name(config: RunConfig) -> str:
    """Name of the base model in an adapter's configuration: a hub repository, or a folder of this machine."""
    anchor = config.anchor
    return anchor.repo if isinstance(anchor, HubAnchor) else str(anchor_folder(anchor))


def base_text(config: RunConfig) -> str:
    """Describe the base model in a sentence fragment."""
    anchor = config.anchor
    if isinstance(anchor, HubAnchor):
        return f"`{anchor.repo}` at revision `{anchor.revision}`"
    if isinstance(anchor, FolderAnchor):
        return "a local model folder, identified by its digest below"
    return f"the nano lab's anchor (world {anchor.world}), a tiny model for experiments"


def _questions(graph: Graph, updates: Sequence[Record]) -> int:
    """Number of generated questions that the updates read."""
    read = {graph.inputs(record.key).get("questions", "") for record in updates}
    return sum(batch.rows.get("questions", 0) for key in read if (batch := graph.catalogue.find(key)))


def _scores(graph: Graph, store: Store, record: Record) -> list[tuple[bool, BenchmarkScore]]:
    """Benchmark scores of the checkpoint, each with whether it was a validation; benchmarks first."""
    scores = [
        (scored.phase == Phase.VALIDATE, row)
        for answered in graph.users(record.key, Phase.RESPOND)
        for scored in graph.users(answered.key)
        if scored.phase in GRADINGS
        for row in store.rows(scored.ref, "benchmark_scores", BenchmarkScore)
    ]
    return sorted(scores, key=lambda pair: (pair[0], pair[1].benchmark))


def textbooks(graph: Graph, store: Store) -> list[Source]:
    """Textbooks of the run's corpus whose files were downloaded."""
    shelves = graph.of(Phase.SOURCES)
    rows = store.rows(shelves[-1].ref, "sources", Source) if shelves else []
    return [row for row in rows if row.sha256]
