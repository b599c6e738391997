"""The stages of a run in their order: corpus, co-training, selection, evaluation. Runs follow it, and so do plans."""

from functools import partial

from flows.corpus import document_pool
from flows.cotrain import Trained, cotrain
from infuser_core.cotrain.route import needs_documents
from infuser_core.store.recipe import ArtifactRef
from tasks import documents, evaluation, training_pool
from tasks.run import Run, current
from tasks.stage import if_stored, subflow


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
    found = None
    if any(needs_documents(config) for config in run.history.all):
        # One Cached task where all of it is stored, else the sub-flow that builds it.
        build = partial(document_pool, run.name, dev, validation)
        found = if_stored(run.name, "build-corpus", build) or build()
    return training_pool.training_pool(run.name, found, dev)


@subflow("evaluate")
def evaluate(run: str, trained: Trained, validation: ArtifactRef) -> ArtifactRef:
    """Returns the selection; the store has the scores, and how much of the benchmarks the choice had seen."""
    selection = evaluation.select_checkpoint(run, trained.iterations, trained.validations)
    evaluation.leakage(run, validation)
    chosen = trained.iterations.index(evaluation.selected_iteration(run, selection, trained.iterations[-1]))
    for asked in current(run).config.evaluate.benchmarks:
        label = asked.label or asked.name
        benchmark(run, 0, label, trained.solvers[0])
        if chosen > 0:
            benchmark(run, trained.iterations[chosen], label, trained.solvers[chosen])
    return selection


def benchmark(run: str, iteration: int, label: str, solver: ArtifactRef) -> ArtifactRef:
    """One checkpoint answers one benchmark; then its answers are scored."""
    responses = evaluation.respond(run, iteration, label, solver, None)
    return evaluation.evaluate(run, iteration, label, responses)
