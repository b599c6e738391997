"""Doing without a textbook, chunk or question: what is left out enters the recipes that it changes, and no other."""

from functools import partial
from typing import Any

from infuser_core.phases.batch import draw_batch
from infuser_core.phases.generate_questions import GenerateSettings
from infuser_core.store.recipe import ArtifactRef
from tasks.budget import budget_of
from tasks.pool_rows import documents_of
from tasks.run import Run, plain


def excluded_documents(run: Run, pool: ArtifactRef) -> frozenset[str]:
    """Documents of the pool that the configuration excludes, by themselves or with their textbook."""
    rule = run.config.corpus.exclude
    if not rule.sources and not rule.documents:
        return frozenset()
    documents = documents_of(run.store, pool)
    return frozenset(d.document_id for d in documents if d.document_id in rule.documents or d.source_id in rule.sources)


def generate_recipe(
    run: Run, iteration: int, pool: ArtifactRef, settings: GenerateSettings, allocation: ArtifactRef | None = None
) -> Any:
    """The phase's settings; constant shares and the batch stand among them where they change it."""
    rule = run.config.cotrain.budget
    shared = {"budget": {"by": rule.by, "shares": rule.shares}} if rule.mode == "shares" else {}
    changed = _changed_batch(run, iteration, pool, settings, allocation)
    return {**plain(settings), **shared, **changed} if shared or changed else settings


def _changed_batch(
    run: Run, iteration: int, pool: ArtifactRef, settings: GenerateSettings, allocation: ArtifactRef | None
) -> dict[str, list[str]]:
    exclude = excluded_documents(run, pool)
    if not exclude:
        return {}
    number = 0 if settings.frozen_batch else iteration
    documents = documents_of(run.store, pool)
    budget = budget_of(run, number, documents, allocation)
    draw = partial(draw_batch, documents, settings.documents, seed=run.config.seed, iteration=number, budget=budget)
    batch = draw(exclude=exclude)
    return {} if batch == draw() else {"batch": [document.document_id for document in batch]}


def left_out(run: Run, iteration: int) -> list[str]:
    """Excluded questions of one iteration: their identifiers begin with its number."""
    return sorted({name for name in run.config.cotrain.exclude_questions if name.startswith(f"{iteration}/")})


def update_recipe(settings: Any, names: list[str]) -> Any:
    """A phase's settings, with the questions that it leaves out where there are any."""
    return {**plain(settings), "left_out": names} if names else settings
