"""The corpus stages of a run in this process, one after the other as the flow composes them, without Prefect."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from places import CONFIGS

from flows.corpus import document_pool
from infuser_core.config.overlays import load
from infuser_core.config.run import RunConfig
from infuser_core.store.recipe import ArtifactRef
from infuser_core.store.store import Store
from tasks import documents
from tasks.run import Run, open_run

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
    with open_run(name or config.run_name(), config) as run:
        yield run


def made(run: Run, stage: Callable[..., Any], *arguments: Any) -> ArtifactRef:
    """A stage's artifact."""
    return stage(run.name, *arguments)


def build(config: RunConfig, name: str = "") -> Built:
    """Everything up to the pool, and what it was made from."""
    with running(config, name) as run:
        dev, validation = (documents.reference_questions(run.name, part) for part in ("dev", "validation"))
        pool = document_pool(run.name, dev, validation)
        found: dict[str, list[ArtifactRef]] = {}
        for entry in run.journal.last_attempt():
            found.setdefault(entry.phase, []).append(ArtifactRef(kind=entry.phase, key=entry.key, digest=entry.digest))
        audits = found["audit"]
        scanned = [ref for ref in audits if run.store.manifest(ref).summary["compared with"] != "questions"]
        return Built(
            store=run.store,
            sources=found["sources"][0],
            downloads=found["download"],
            pages=found["convert"],
            bounds=found.get("structure", []),
            chunks=found["chunk"],
            judgements=found["judge"],
            audits=[ref for ref in audits if ref not in scanned],
            references=scanned,
            pool=pool,
        )
