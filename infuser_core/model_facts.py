"""What is known of a checkpoint, collected for its model card."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from infuser_core.config import RunConfig
from infuser_core.lineage.graph import UPDATES, Graph
from infuser_core.lineage.index import Record
from infuser_core.recipe import digest_of
from infuser_core.schemas import BenchmarkScore, Source, Update
from infuser_core.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """One score of the checkpoint."""

    benchmark: str
    """Name in tables."""
    is_selection: bool
    """Whether the checkpoint may have been selected by it."""
    accuracy: float
    """Mean accuracy."""
    low: float
    """Lower end of the 95% interval."""
    high: float
    """Upper end."""
    questions: int
    """Questions asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """What the updates on the way from the anchor were made of."""

    updates: int
    """Phases that changed the weights."""
    steps: int
    """Optimizer steps taken."""
    tokens: int
    """Tokens in the loss."""
    questions: int
    """Generated questions that the updates read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """Everything a model card says."""

    run: str
    """Run that the checkpoint belongs to."""
    config: RunConfig
    """Settings that hold for it."""
    role: str
    """solver or generator."""
    iteration: int
    """Iterations that the checkpoint has seen."""
    checkpoint_id: str
    """Its artifact."""
    anchor_id: str
    """Artifact of the anchor."""
    anchor_digest: str
    """sha256 over the base model's files."""
    config_digest: str
    """sha256 of the settings."""
    training: Training
    """What it was trained on."""
    scores: Sequence[Scored]
    """What it scored."""
    sources: Sequence[Source]
    """Textbooks of the corpus, with their licences."""
    files: Mapping[str, str]
    """Exported files with their sha256."""

    @property
    def licences(self) -> dict[str, int]:
        """Licence to number of textbooks."""
        return dict(Counter(source.licence or "not stated" for source in self.sources).most_common())


def facts_of(
    graph: Graph,
    store: Store,
    record: Record,
    config: RunConfig,
    *,
    role: str,
    iteration: int,
    files: Mapping[str, str],
) -> ModelFacts:
    """The facts of one checkpoint of a run."""
    chain = graph.trained(record.key)
    return ModelFacts(
        run=graph.run,
        config=config,
        role=role,
        iteration=iteration,
        checkpoint_id=record.id,
        anchor_id=chain[0].id,
        anchor_digest=str(store.manifest(chain[0].ref).recipe["config"].get("model", "")),
        config_digest=digest_of(config.model_dump(mode="json")),
        training=_training(graph, store, chain),
        scores=_scores(graph, store, record),
        sources=_sources(graph, store) if len(chain) > 1 and not config.cotrain.dev_only else [],
        files=files,
    )


def _training(graph: Graph, store: Store, chain: Sequence[Record]) -> Training:
    updates = [record for record in chain if record.phase in UPDATES]
    rows = [row for record in updates for row in store.rows(record.ref, "updates", Update)]
    read = {graph.inputs(record.key).get("questions", "") for record in updates}
    counts = [graph.catalogue.records[key].rows.get("questions", 0) for key in read if key in graph.catalogue.records]
    return Training(
        updates=len(updates),
        steps=sum(not row.skipped for row in rows),
        tokens=sum(row.num_tokens for row in rows if not row.skipped),
        questions=sum(counts),
    )


def _scores(graph: Graph, store: Store, record: Record) -> list[Scored]:
    found = []
    for answered in graph.users(record.key, "respond"):
        for scored in graph.users(answered.key):
            if scored.phase in ("validate", "evaluate"):
                rows = store.rows(scored.ref, "benchmark_scores", BenchmarkScore)
                found += [_scored(row, scored.phase == "validate") for row in rows]
    return sorted(found, key=lambda score: (score.is_selection, score.benchmark))


def _scored(row: BenchmarkScore, is_selection: bool) -> Scored:
    return Scored(
        benchmark=row.benchmark,
        is_selection=is_selection,
        accuracy=row.accuracy,
        low=row.low,
        high=row.high,
        questions=row.num_questions,
    )


def _sources(graph: Graph, store: Store) -> list[Source]:
    shelves: list[Any] = graph.of("sources")
    rows = store.rows(shelves[-1].ref, "sources", Source) if shelves else []
    return [row for row in rows if row.sha256]
