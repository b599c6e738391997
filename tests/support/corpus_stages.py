"""The corpus stages of a run in this process, one after the other as the flow composes them, without Prefect."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from places import CONFIGS

from infuser_core.config.overlays import load
from infuser_core.config.run import RunConfig
from infuser_core.store.recipe import ArtifactRef
from infuser_core.store.store import Store
from tasks import audits, documents, pool, textbooks
from tasks.run import Run, opened
from tasks.work import execute

NANO = CONFIGS / "nano.yaml"
RULES = ("corpus.judge={type: rules}", "evaluate.benchmarks=[]", "data.validation.size=8")
"""Quick: no model is loaded, and little is compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """The artifacts of one build."""

    store: Store
    sources: ArtifactRef
    downloads: list[ArtifactRef]
    pages: list[ArtifactRef]
    bounds: list[ArtifactRef]
    chunks: list[ArtifactRef]
    judgements: list[ArtifactRef]
    audits: list[ArtifactRef]
    references: list[ArtifactRef]
    pool: ArtifactRef

    def rows(self, ref: ArtifactRef, table: str, kind: type) -> list[Any]:
        """Rows of one of them."""
        return self.store.rows(ref, table, kind)

    def bytes(self) -> bytes:
        """The pool's documents as they lie on the disk."""
        return self.store.path(self.pool, "documents.parquet").read_bytes()


def config_of(*overrides: str) -> RunConfig:
    """The nano configuration, changed."""
    return load([NANO], [*RULES, *overrides])


@contextmanager
def running(config: RunConfig, name: str = "") -> Iterator[Run]:
    """The run, without a server; its store is the environment's."""
    with opened(name or config.run_name(), config, quiet=True, published=False) as run:
        yield run


def made(run: Run, stage: Callable[..., Any], *arguments: Any) -> ArtifactRef:
    """A stage's artifact."""
    return execute(run, stage.__wrapped__(run, *arguments)).ref


def build(config: RunConfig, name: str = "") -> Built:
    """Everything up to the pool."""
    with running(config, name) as run:
        dev, validation = (made(run, documents.reference_questions, part) for part in ("dev", "validation"))
        topics = made(run, textbooks.extract_taxonomy, dev)
        books = made(run, documents.print_textbooks)
        searches = [
            made(run, textbooks.search_textbooks, topics, books, n) for n in textbooks.topic_groups(run.name, topics)
        ]
        chosen = made(run, textbooks.choose_textbooks, topics, searches)
        downloads = [
            made(run, textbooks.download_textbooks, chosen, books, n) for n in textbooks.source_groups(run.name, chosen)
        ]
        sources = made(run, textbooks.shelve_textbooks, chosen, downloads)
        pages = [made(run, documents.convert_textbooks, sources, group) for group in downloads]
        asks = documents.has_structure_model(run.name)
        bounds = [made(run, documents.find_structure, group) for group in pages] if asks else []
        found = bounds or [None] * len(pages)
        groups = zip(downloads, pages, found, strict=True)
        chunks = [made(run, documents.chunk_textbooks, sources, *group) for group in groups]
        judgements = [made(run, documents.judge_chunks, group) for group in chunks]
        asked = made(run, documents.benchmark_questions)
        pairs = list(zip(chunks, judgements, strict=True))
        audited = [made(run, audits.audit_overlap, *pair, dev, validation, asked) for pair in pairs]
        compared = [
            made(run, audits.audit_reference, chunks, judgements, dev, path) for path in audits.references(run.name)
        ]
        filled = made(run, pool.fill_pool, sources, pages, chunks, judgements, audited, compared)
        return Built(
            store=run.store,
            sources=sources,
            downloads=downloads,
            pages=pages,
            bounds=bounds,
            chunks=chunks,
            judgements=judgements,
            audits=audited,
            references=compared,
            pool=filled,
        )
