"""The stages of a run in their order: corpus, co-training, selection, evaluation. Runs follow it, and so do plans."""

from functools import partial

from flows.corpus import build_corpus, document_pool
from flows.cotrain import cotrain
from flows.evaluate import evaluate
from infuser_core.store.recipe import ArtifactRef
from tasks import documents, training_pool
from tasks.run import Run
from tasks.stage import recall


def life_cycle(run: Run) -> None:
    """Everything but the report."""
    dev = documents.reference_questions(run.name, "dev")
    validation = documents.reference_questions(run.name, "validation")
    trained = cotrain(run.name, dev, validation, _pool(run, dev, validation))
    evaluate(run.name, trained, validation)


def _pool(run: Run, dev: ArtifactRef, validation: ArtifactRef) -> ArtifactRef:
    """The pool that questions are drawn from; the dev set where a run trains on nothing else."""
    if all(config.cotrain.dev_only for config in run.history.all):
        return dev
    found = _documents(run.name, dev, validation) if training_pool.needs_corpus(run.name) else None
    return training_pool.training_pool(run.name, found, dev)


def _documents(run: str, dev: ArtifactRef, validation: ArtifactRef) -> ArtifactRef:
    """The document pool: one Cached task where all of it is stored, else the sub-flow that builds it."""
    lookup = partial(document_pool, run, dev, validation)
    return recall(run, "build-corpus", lookup) or build_corpus(run, dev, validation)
