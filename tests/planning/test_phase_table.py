"""The table of phases names what the stages produce, and says of each what its recipes show."""

import ast
import re

import pytest
from everything_stored import base_of, files_in, walked
from house import FILES, nodes

from infuser_core.config.overlays import merge, validate
from infuser_core.config.phase_table import (
    CHECKPOINTS,
    GRADIENT,
    GRADIENTS,
    MEASUREMENTS,
    MOMENTS,
    TESTS,
    UPDATES,
    WEIGHTS,
    Phase,
    PipelinePart,
)
from infuser_core.store.recipe import Recipe
from tasks.stage import stage


def named_in_tasks() -> set[str]:
    """First arguments of the calls in `tasks/` that name a phase."""
    found = set()
    for path, call in nodes(ast.Call):
        function = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
        if path.parts[-2] in ("tasks", "studies") and function in ("stage", "recipe", "work") and call.args:
            found |= {each.value for each in call.args[:1] if isinstance(each, ast.Constant)}
    return found


def test_the_table_names_the_phases_that_stages_make_and_no_other():
    assert {str(phase) for phase in Phase} == named_in_tasks()


def test_a_stage_of_an_unknown_phase_fails_where_it_is_declared():
    with pytest.raises(ValueError, match="rolout_dev"):
        stage("rolout_dev")


def test_statements_name_phases_of_the_table():
    """A misspelt phase in a statement selects no rows, and nothing else tells."""
    named = {
        name
        for path in FILES
        for listed in re.findall(r"\bphase (?:=|in|IN) \(?((?:'\w+'(?:, )?)+)", path.read_text(encoding="utf-8"))
        for name in re.findall(r"\w+", listed)
    }
    assert named and named <= set(Phase)


@pytest.fixture(scope="module")
def recipes(tmp_path_factory: pytest.TempPathFactory) -> list[Recipe]:
    """Recipes of every stage of the pipeline, with the phases that are optional."""
    with files_in(tmp_path_factory.mktemp("world")) as world:
        options = {"budget": {"mode": "bandit"}, "key_solver": {"type": "folder", "path": str(world / "model")}}
        configs = [base_of(world), merge(base_of(world), {"cotrain": options})]
        return [one for each in configs for one in walked(validate(each), world, fixed=True, iterations=2).recipes]


def sources(recipe: Recipe) -> set[str]:
    """Phases that the inputs come from."""
    return {identity.partition("@")[0] for identity in recipe.inputs.values()}


def test_every_phase_of_a_run_was_walked(recipes: list[Recipe]):
    parts = (PipelinePart.TEST, PipelinePart.LOOP, PipelinePart.END)
    assert {phase for phase in Phase if phase.facts.part in parts} <= {recipe.phase for recipe in recipes}


def test_phases_before_the_loop_have_no_iteration(recipes: list[Recipe]):
    for recipe in recipes:
        assert (recipe.iteration >= 0) == (Phase(recipe.phase).facts.part in (PipelinePart.LOOP, PipelinePart.TEST))


def test_weights_and_moments_are_read_from_inputs_that_are_checkpoints(recipes: list[Recipe]):
    for recipe in recipes:
        reads = Phase(recipe.phase).facts.reads
        assert (WEIGHTS in reads) == bool(sources(recipe) & set(CHECKPOINTS)), recipe.phase
        assert MOMENTS not in reads or WEIGHTS in reads


def test_gradients_are_read_from_inputs_that_have_one(recipes: list[Recipe]):
    for recipe in recipes:
        reads = Phase(recipe.phase).facts.reads
        assert (GRADIENT in reads) == bool(sources(recipe) & set(GRADIENTS)), recipe.phase


def test_updates_turn_a_checkpoint_of_their_role_into_the_next(recipes: list[Recipe]):
    for recipe in recipes:
        role = recipe.phase.removeprefix("update_")
        if recipe.phase in UPDATES:
            assert recipe.inputs[role].partition("@")[0] in ("anchor", recipe.phase)


def test_tests_and_comparisons_measure_checkpoints():
    assert set(TESTS) < set(MEASUREMENTS)
    assert [phase for phase in MEASUREMENTS if phase.facts.makes] == []


def test_every_file_that_retention_removes_is_made_by_a_phase():
    made = {content for phase in Phase for content in phase.facts.makes}
    assert made == {MOMENTS, WEIGHTS, GRADIENT}


def test_phases_are_written_in_the_order_of_the_pipeline():
    parts = list(PipelinePart)
    numbers = [parts.index(phase.facts.part) for phase in Phase]
    assert numbers == sorted(numbers)
