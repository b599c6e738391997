"""The stages of a run in their order: corpus, co-training, selection, evaluation. Runs follow it, and so do plans."""

from functools import partial

from flows.build_corpus import build_corpus, document_pool
from flows.cotrain import cotrain
from flows.evaluate import evaluate
from infuser_core.recipe import ArtifactRef
from tasks import documents
from tasks.context import Run
from tasks.stage import recall


def life_cycle(run: Run) -> None:
    """Everything but the report."""
    dev = documents.reference_questions(run.name, "dev")
    validation = documents.reference_questions(run.name, "validation")
    without_corpus = all(config.cotrain.dev_only for config in run.history.all)
    pool = dev if without_corpus else _pool(run.name, dev, validation)
    trained = cotrain(run.name, dev, validation, pool)
    evaluate(run.name, trained, validation)


def _pool(run: str, dev: ArtifactRef, validation: ArtifactRef) -> ArtifactRef:
    """The document pool: one Cached task where all of it is stored, else the sub-flow that builds it."""
    lookup = partial(document_pool, run, dev, validation)
    return recall(run, "build-corpus", lookup) or build_corpus(run, dev, validation)
