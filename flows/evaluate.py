"""Checkpoint selection by validation accuracy, then benchmarks of the anchor and of the selected checkpoint."""

from flows.cotrain import Trained
from infuser_core.store.recipe import ArtifactRef
from tasks import evaluation
from tasks.stage import subflow


@subflow("evaluate", "evaluate")
def evaluate(run: str, trained: Trained, validation: ArtifactRef) -> ArtifactRef:
    """Returns the selection; the store has the scores, and how much of the benchmarks the choice had seen."""
    selection = evaluation.select_checkpoint(run, trained.iterations, trained.validations)
    evaluation.leakage(run, validation)
    chosen = trained.iterations.index(evaluation.selected_iteration(run, selection, trained.iterations[-1]))
    for label in evaluation.benchmark_labels(run):
        benchmark(run, 0, label, trained.solvers[0])
        if chosen > 0:
            benchmark(run, trained.iterations[chosen], label, trained.solvers[chosen])
    return selection


def benchmark(run: str, iteration: int, label: str, solver: ArtifactRef) -> ArtifactRef:
    """One checkpoint answers one benchmark; then its answers are scored."""
    responses = evaluation.respond(run, iteration, label, solver, None)
    return evaluation.evaluate(run, iteration, label, responses)
