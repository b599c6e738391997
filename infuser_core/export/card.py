"""Model card of an exported checkpoint: its facts collected from the store, and the README made of them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from infuser_core.config.run import RunConfig
from infuser_core.config.sources import FolderAnchor, HubAnchor
from infuser_core.lineage.graph import Graph
from infuser_core.schemas import BenchmarkScore, Source, Update
from infuser_core.store.catalogue import UPDATES
from infuser_core.store.recipe import Record, digest_of
from infuser_core.store.store import Store


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
    """Data of the updates on the way from the anchor."""

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
    """Facts of its training."""
    scores: Sequence[Scored]
    """Benchmark scores."""
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


_ROLES = {
    "solver": "answers questions by reasoning step by step",
    "generator": "writes questions with reference answers from passages of textbooks",
}


def card(facts: ModelFacts) -> str:
    """Markdown with a metadata block on top."""
    parts = [
        _metadata(facts),
        _opening(facts),
        _usage(facts),
        _scores_model_card(facts),
        _training_model_card(facts),
        _textbooks(facts),
    ]
    return "\n\n".join([*(part for part in parts if part), _provenance(facts)]) + "\n"


def _metadata(facts: ModelFacts) -> str:
    values = {
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["infuser", facts.role, "reinforcement-learning"],
        "license": "other",
        "license_name": "see-base-model",
    }
    if isinstance(facts.config.anchor, HubAnchor):
        values["base_model"] = facts.config.anchor.repo
    return f"---\n{yaml.safe_dump(values, sort_keys=False)}---"


def _opening(facts: ModelFacts) -> str:
    trained = f"after {facts.iteration} iterations of co-training" if facts.iteration else "before any training"
    return (
        f"# {facts.run}, {facts.role} after iteration {facts.iteration}\n\n"
        f"The {facts.role} of run `{facts.run}` {trained}: it {_ROLES[facts.role]}. It starts from {_base(facts)}. "
        "Its licence is that of the base model; the textbooks behind the training questions have their own, below."
    )


def _base(facts: ModelFacts) -> str:
    anchor = facts.config.anchor
    if isinstance(anchor, HubAnchor):
        return f"`{anchor.repo}` at revision `{anchor.revision}`"
    if isinstance(anchor, FolderAnchor):
        return "a local model folder, told by its digest below"
    return f"the nano lab's anchor (world {anchor.world}), a tiny model for experiments"


def _usage(facts: ModelFacts) -> str:
    sampling = "the evaluation" if facts.role == "solver" else "training"
    return (
        "## Use\n\n```python\n"
        "from transformers import AutoModelForCausalLM, AutoTokenizer\n\n"
        'folder = "."  # this folder\n'
        "tokenizer = AutoTokenizer.from_pretrained(folder)\n"
        f'model = AutoModelForCausalLM.from_pretrained(folder, dtype="{facts.config.engine.dtype}")\n'
        'messages = [{"role": "user", "content": "..."}]\n'
        "inputs = tokenizer.apply_chat_template(\n"
        '    messages, add_generation_prompt=True, return_tensors="pt", return_dict=True\n'
        ")\n"
        "print(tokenizer.decode(model.generate(**inputs)[0]))\n"
        f"```\n\nTraining used the prompt profile `{facts.config.prompts}`. The generation config holds the sampling "
        f"of {sampling}; `do_sample=False` is greedy."
    )


def _scores_model_card(facts: ModelFacts) -> str:
    if not facts.scores:
        return ""
    rows = [
        [
            f"{score.benchmark} (checkpoints are selected by it)" if score.is_selection else score.benchmark,
            f"{score.accuracy:.4f}",
            f"[{score.low:.4f}, {score.high:.4f}]",
            str(score.questions),
        ]
        for score in facts.scores
    ]
    return "## Scores\n\n" + _table(["benchmark", "accuracy", "95% interval", "questions"], rows)


def _training_model_card(facts: ModelFacts) -> str:
    done, cotrain = facts.training, facts.config.cotrain
    if not done.updates:
        return "## Training\n\nNone: these are the weights of the base model."
    role = cotrain.solver if facts.role == "solver" else cotrain.generator
    rows = [
        ["updates", f"{done.updates} ({done.steps} optimizer steps, {done.tokens} tokens)"],
        ["generated questions read", str(done.questions)],
        ["learning rate", f"{role.learning_rate:g}"],
        ["advantage", role.advantage],
        ["generator's reward", cotrain.reward.name if cotrain.generator.update else "none: it was not trained"],
        ["seed", str(facts.config.seed)],
    ]
    where = "answers to the reference questions alone" if cotrain.dev_only else "questions written from textbooks"
    return f"## Training\n\nReinforcement learning on {where}.\n\n" + _table(["fact", "value"], rows)


def _textbooks(facts: ModelFacts) -> str:
    if not facts.sources:
        return ""
    licences = ", ".join(f"{licence} ({count})" for licence, count in facts.licences.items())
    rows = [
        [source.title, source.author, source.licence or "not stated", source.source_url or source.source_id]
        for source in sorted(facts.sources, key=lambda source: source.source_id)
    ]
    head = f"## Textbooks\n\nThe corpus of the run has {len(facts.sources)} textbooks; licences: {licences}.\n\n"
    return head + _table(["title", "author", "licence", "address"], rows)


def _provenance(facts: ModelFacts) -> str:
    rows = [
        ["checkpoint", facts.checkpoint_id],
        ["anchor", facts.anchor_id],
        ["base model's files", facts.anchor_digest],
        ["settings", facts.config_digest],
        *([name, digest] for name, digest in facts.files.items()),
    ]
    cells = [[name, f"`{value}`"] for name, value in rows]
    table = _table(["what", "identity or sha256"], cells)
    return f"## Provenance\n\n{table}\n\n`infuser why {facts.checkpoint_id}` tells more."


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(_cell(value) for value in line) + " |" for line in lines)


def _cell(value: str) -> str:
    return " ".join(value.replace("|", "\\|").split())
