"""Model card (README) of an exported checkpoint, from facts that the store holds."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCardData
from jinja2 import Environment, PackageLoader, StrictUndefined

from infuser_core.config.phase_table import GRADINGS, UPDATES, Phase
from infuser_core.config.run import RunConfig
from infuser_core.config.sources import FileQuestions, FolderAnchor, HubAnchor, NanoAnchor
from infuser_core.evaluation.anchors import anchor_folder, origin_of
from infuser_core.results.lineage.graph import Graph
from infuser_core.schemas import BenchmarkScore, Source, Update
from infuser_core.store.recipe import Record
from infuser_core.store.store import Store
from infuser_core.system.hub import SCHEME, parse_address

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
    scores = _scores(graph, store, record)
    ancestors = [record, *graph.above(record.key)]
    sources = textbooks(graph, store) if updates and not config.cotrain.dev_only else []
    return render(
        "card.md",
        name=name,
        metadata=_metadata(graph.run, config, role, scores, adapter=adapter),
        adapter=base_name(config) if adapter else "",
        run=graph.run,
        role=role,
        does=_ROLES[role],
        iteration=iteration,
        config=config,
        base=base_text(config),
        scores=scores,
        seconds=sum(each.seconds for each in ancestors),
        devices=dict.fromkeys(facts["device"] for r in ancestors for facts in r.machine.values() if "device" in facts),
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


def _metadata(
    run: str, config: RunConfig, role: str, scores: Sequence[tuple[bool, BenchmarkScore]], *, adapter: bool
) -> str:
    """Facts for the hub as YAML. The validation is left out: checkpoints are selected by it."""
    anchor = config.anchor
    # The nano anchors are part of this project.
    is_ours = isinstance(anchor, NanoAnchor)
    addresses = [config.corpus.pool, config.data.dev.path if isinstance(config.data.dev, FileQuestions) else ""]
    results = [
        EvalResult(
            task_type="text-generation",
            dataset_type=score.benchmark,
            dataset_name=score.benchmark,
            metric_type="accuracy",
            metric_value=score.accuracy,
        )
        for is_validation, score in scores
        if not is_validation
    ]
    data = ModelCardData(
        model_name=run,
        library_name="peft" if adapter else "transformers",
        pipeline_tag="text-generation",
        tags=["infuser", role, "reinforcement-learning"],
        base_model=anchor.repo if isinstance(anchor, HubAnchor) else None,
        datasets=[parse_address(text).repo for text in addresses if text.startswith(SCHEME)] or None,
        eval_results=results or None,
        license="apache-2.0" if is_ours else "other",
        license_name=None if is_ours else "see-base-model",
    )
    return data.to_yaml() + "\n"


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
        licence = origin_of(Path(anchor.path)).get("licence", "not stated")
        return f"a local model folder (licence: {licence})"
    return f"the nano lab's anchor (world {anchor.world}, licence: Apache-2.0), a tiny model for experiments"


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
