"""Within an iteration everything reads one solver and one generator: those that the iteration before left."""

import pytest
from launcher import SmallRun

from infuser_core.store.journal import Journal


@pytest.fixture(scope="module")
def inputs(small_run: SmallRun) -> dict[tuple[str, int], dict[str, str]]:
    """Inputs of every stage of the run, and its own id as `self`, by phase and iteration."""
    store = small_run.store
    refs = {ref.key: ref for ref in store.refs()}
    return {
        (entry.phase, entry.iteration): {
            **store.manifest(refs[entry.key]).recipe["inputs"],
            "self": refs[entry.key].id,
        }
        for entry in Journal(small_run.root, small_run.name).latest()
    }


@pytest.mark.parametrize("iteration", [0, 1])
def test_every_phase_of_an_iteration_reads_the_same_solver(inputs: dict, iteration: int):
    readers = ["rollout_dev", "dev_gradient", "rollout_questions", "score_influence", "update_solver"]
    solvers = {inputs[phase, iteration]["solver"] for phase in readers}
    assert solvers == {inputs["update_solver", 0]["self"] if iteration else inputs["anchor", -1]["self"]}


@pytest.mark.parametrize("iteration", [0, 1])
def test_texts_and_update_of_the_generator_belong_to_the_same_generator(inputs: dict, iteration: int):
    generators = {inputs[phase, iteration]["generator"] for phase in ("generate_questions", "update_generator")}
    assert generators == {inputs["update_generator", 0]["self"] if iteration else inputs["anchor", -1]["self"]}


@pytest.mark.parametrize("iteration", [0, 1])
def test_the_updates_use_the_scores_and_answers_of_their_iteration(inputs: dict, iteration: int):
    questions = inputs["generate_questions", iteration]["self"]
    answers = inputs["rollout_questions", iteration]["self"]
    score, generator, solver = (
        inputs[phase, iteration] for phase in ("score_influence", "update_generator", "update_solver")
    )
    assert generator["scores"] == score["self"]
    assert {score["questions"], generator["questions"], solver["questions"]} == {questions}
    assert {score["rollouts"], solver["rollouts"]} == {answers}


def test_the_solver_is_not_updated_from_the_generators_update(inputs: dict):
    assert inputs["update_generator", 0]["self"] not in inputs["update_solver", 0].values()
