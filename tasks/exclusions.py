"""Doing without a textbook, chunk or question: what is left out enters the recipes that it changes, and no other."""

from functools import lru_cache
from typing import Any

from infuser_core.phases.batch import draw_documents
from infuser_core.phases.generate_questions import GenerateSettings
from infuser_core.recipe import ArtifactRef
from infuser_core.schemas import Document
from infuser_core.store import Store
from tasks.context import Run
from tasks.recipes import plain


def excluded_documents(run: Run, pool: ArtifactRef) -> frozenset[str]:
    """Documents of the pool that the configuration excludes, by themselves or with their textbook."""
    rule = run.config.corpus.exclude
    if not rule.sources and not rule.documents:
        return frozenset()
    documents = _documents(run.store, pool)
    return frozenset(d.document_id for d in documents if d.document_id in rule.documents or d.source_id in rule.sources)


def generate_recipe(run: Run, iteration: int, pool: ArtifactRef, settings: GenerateSettings) -> Any:
    """The phase's settings; the batch stands among them where exclusions change it."""
    exclude = excluded_documents(run, pool)
    if not exclude:
        return settings
    number = 0 if settings.frozen_batch else iteration
    documents = _documents(run.store, pool)
    whole = draw_documents(documents, settings.documents, seed=run.config.seed, iteration=number)
    batch = draw_documents(documents, settings.documents, seed=run.config.seed, iteration=number, exclude=exclude)
    return settings if batch == whole else {**plain(settings), "batch": [d.document_id for d in batch]}


def left_out(run: Run, iteration: int) -> list[str]:
    """Excluded questions of one iteration: their identifiers begin with its number."""
    return sorted({name for name in run.config.cotrain.exclude_questions if name.startswith(f"{iteration}/")})


def update_recipe(settings: Any, names: list[str]) -> Any:
    """A phase's settings, with the questions that it leaves out where there are any."""
    return {**plain(settings), "left_out": names} if names else settings


@lru_cache(maxsize=1)
def _documents(store: Store, pool: ArtifactRef) -> list[Document]:
    return store.rows(pool, "documents", Document)
