"""Order of a run's stages: corpus, co-training, selection, evaluation; used for runs and for plans."""

from functools import partial

from flows.corpus import document_pool
from flows.cotrain import cotrain
from infuser_core.cotrain.route import needs_documents
from infuser_core.store.recipe import ArtifactRef
from tasks import documents, evaluation, training_pool
from tasks.run import Run, current_run
from tasks.stage import if_stored, subflow


def life_cycle(run: Run) -> None:
    """Run all stages of a run, except its report."""
    dev = documents.reference_questions(run.name, "dev")
    validation = documents.reference_questions(run.name, "validation")
    pool = dev
    if not all(config.cotrain.dev_only for config in run.history.all):
        corpus = None
        if any(needs_documents(config) for config in run.history.all):
            # Shown as one Cached task if everything is stored, else as the sub-flow that builds the pool.
            build = partial(document_pool, run.name, dev, validation)
            corpus = if_stored(run.name, "build-corpus", build) or build()
        pool = training_pool.training_pool(run.name, corpus, dev)
    solvers, validations = cotrain(run.name, dev, validation, pool)
    evaluate(run.name, solvers, validations, validation)


@subflow("evaluate", "evaluation of {run}")
def evaluate(
    run: str, solvers: dict[int, ArtifactRef], validations: dict[int, ArtifactRef], validation: ArtifactRef
) -> ArtifactRef:
    """Select a checkpoint and evaluate it and the anchor (base model) on all benchmarks. Returns the selection."""
    selection = evaluation.select_checkpoint(run, list(validations), list(validations.values()))
    evaluation.leakage(run, validation)
    selected = evaluation.selected_iteration(run, selection, max(solvers))
    for settings in current_run(run).config.evaluate.benchmarks:
        for completed in sorted({0, selected}):
            benchmark(run, completed, settings.label or settings.name, solvers[completed])
    return selection


def benchmark(run: str, completed: int, label: str, solver: ArtifactRef) -> ArtifactRef:
    """Evaluate a checkpoint on one benchmark: collect its answers, then score them."""
    responses = evaluation.respond(run, completed, label, solver, None)
    return evaluation.evaluate(run, completed, label, responses)
