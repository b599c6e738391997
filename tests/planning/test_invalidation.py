"""Another input or another VERSION computes again exactly what is made from it."""

import ast
import json
import os
from importlib import import_module
from pathlib import Path

import places
import pytest
from everything_stored import EverythingIsThere, Place, base_of, changed, recipes, walked
from places import ROOT

from infuser_core.config.overlays import merge, validate

INPUTS_GOLDEN = places.GOLDEN / "invalidation_inputs.json"
LOOP = ("rollout_dev", "dev_gradient", "generate_questions", "rollout_questions", "score_influence")
READS = {
    "rollout_dev": {"dev": "questions", "solver": "solver"},
    "dev_gradient": {"rollouts": "rollout_dev", "solver": "solver"},
    "generate_questions": {"pool": "pool", "generator": "generator"},
    "rollout_questions": {"questions": "generate_questions", "solver": "solver"},
    "score_influence": {
        "questions": "generate_questions",
        "rollouts": "rollout_questions",
        "gradient": "dev_gradient",
        "solver": "solver",
    },
    "update_generator": {
        "questions": "generate_questions",
        "scores": "score_influence",
        "generator": "generator",
    },
    "update_solver": {
        "questions": "generate_questions",
        "rollouts": "rollout_questions",
        "scores": "score_influence",
        "solver": "solver",
    },
}
"""Phase -> input -> the phase that it is from; `solver` and `generator` are the checkpoints before the iteration."""


@pytest.fixture(scope="module")
def before(world: Path) -> EverythingIsThere:
    return walked(validate(base_of(world)), world, fixed=False, iterations=2)


def named(place: Place, store: EverythingIsThere) -> str:
    """A stage in words; a number where there are several of a phase in an iteration."""
    phase, iteration, number = place
    several = sum(other[:2] == place[:2] for other in store.places()) > 1
    return phase + (f"/{iteration}" if iteration >= 0 else "") + (f"#{number}" if several else "")


def again(world: Path, place: Place, before: EverythingIsThere) -> list[str]:
    """Stages with another key when this artifact has another content."""
    after = walked(validate(base_of(world)), world, fixed=False, iterations=2, other=place)
    assert after.places() == before.places()
    pairs = zip(before.places(), before.recipes, after.recipes, strict=True)
    return [named(where, before) for where, old, new in pairs if old.key != new.key]


def test_every_artifact_changes_the_stages_of_the_golden_table(world: Path, before: EverythingIsThere):
    found = {named(place, before): again(world, place, before) for place in before.places()}
    if os.environ.get("INFUSER_REFRESH_GOLDEN"):
        INPUTS_GOLDEN.write_text(json.dumps(found, indent=1) + "\n")
    golden = json.loads(INPUTS_GOLDEN.read_text())
    assert found == golden, (
        "is that meant? Then INFUSER_REFRESH_GOLDEN=1 .venv/bin/pytest tests/planning/test_invalidation.py"
    )


def test_the_table_is_what_follows_from_the_inputs_in_the_recipes(world: Path, before: EverythingIsThere):
    """The same by another way: along the ids in the recipes, without asking any stage again."""
    golden = json.loads(INPUTS_GOLDEN.read_text())
    for start, ref in zip(before.places(), before.refs, strict=True):
        reached = {ref.id}
        follows = []
        for place, recipe, made in zip(before.places(), before.recipes, before.refs, strict=True):
            if made.id not in reached and reached & {*recipe.inputs.values()}:
                reached.add(made.id)
                follows.append(named(place, before))
        assert follows == golden[named(start, before)], named(start, before)


@pytest.mark.parametrize("phase", sorted(READS))
@pytest.mark.parametrize("iteration", [0, 1])
def test_a_phase_reads_what_the_algorithm_says(before: EverythingIsThere, phase: str, iteration: int):
    ids = {ref.id: recipe for ref, recipe in zip(before.refs, before.recipes, strict=True)}
    (recipe,) = [each for each in before.recipes if (each.phase, each.iteration) == (phase, iteration)]
    assert set(recipe.inputs) == set(READS[phase])
    for name, source in READS[phase].items():
        read = ids[recipe.inputs[name]]
        if source in ("solver", "generator"):
            assert (read.phase, read.iteration) == (f"update_{source}", 0) if iteration else ("anchor", -1)
        elif source in ("questions", "pool"):
            assert (read.phase, read.iteration) == (source, -1)
        else:
            assert (read.phase, read.iteration) == (source, iteration)


def test_what_is_measured_is_never_read_by_training(before: EverythingIsThere):
    measured = {ref.id for ref in before.refs if ref.kind in ("respond", "validate", "evaluate", "select", "leakage")}
    readers = {each.phase for each in before.recipes if measured & {*each.inputs.values()}}
    assert readers == {"validate", "evaluate", "select"}


VERSIONS_GOLDEN = places.GOLDEN / "invalidation_versions.json"
STUDIES = ["studies.candidates", "studies.effects", "studies.gradients", "studies.selection"]
"""Asked for by commands of their own: no stage of a run."""
OPTIONAL = ["phases.allocate", "phases.check_keys"]
"""Stages that only some configurations have."""


def constants() -> list[str]:
    """Every `NAME_VERSION = n` of the code of stages, as `module:NAME`."""
    folders = ("infuser_core/cotrain/phases", "infuser_core/cotrain/studies", "tasks")
    files = [path for folder in folders for path in (ROOT / folder).glob("*.py")]
    files.append(ROOT / "infuser_core" / "evaluation" / "evaluate.py")
    found = []
    for path in sorted(files):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).endswith("VERSION"):
                found.append(f"{module}:{ast.unparse(node.targets[0])}")
    return found


def test_every_version_changes_the_stages_of_the_golden_table(world: Path, monkeypatch: pytest.MonkeyPatch):
    config = validate(base_of(world))
    before = recipes(config, world, fixed=True)
    found = {}
    for name in constants():
        module, _, constant = name.partition(":")
        with monkeypatch.context() as patched:
            patched.setattr(import_module(module), constant, getattr(import_module(module), constant) + 1)
            found[name] = changed(before, recipes(config, world, fixed=True))
    if os.environ.get("INFUSER_REFRESH_GOLDEN"):
        VERSIONS_GOLDEN.write_text(json.dumps(found, indent=1) + "\n")
    golden = json.loads(VERSIONS_GOLDEN.read_text())
    assert found == golden, (
        "is that meant? Then INFUSER_REFRESH_GOLDEN=1 .venv/bin/pytest tests/planning/test_invalidation.py"
    )


def test_every_stage_has_a_version_and_every_version_a_stage(world: Path):
    golden = json.loads(VERSIONS_GOLDEN.read_text())
    versioned = [stage for stages in golden.values() for stage in stages]
    config = validate(base_of(world))
    asked = recipes(config, world, fixed=True)
    assert sorted(versioned) == sorted(asked), "each stage stands in the table once"
    idle = [name for name, stages in golden.items() if not stages]
    assert {name for name in idle if not name.startswith("tasks.")} == {
        f"infuser_core.cotrain.{study}:VERSION" for study in (*STUDIES, *OPTIONAL)
    }


def test_a_new_version_spreads_to_what_is_made_from_its_artifacts_alone(world: Path, monkeypatch: pytest.MonkeyPatch):
    config = validate(merge(base_of(world), {}))
    before = recipes(config, world, fixed=False, iterations=2)
    monkeypatch.setattr("infuser_core.cotrain.phases.dev_gradient.VERSION", 99)
    after = recipes(config, world, fixed=False, iterations=2)
    same = {stage for stage in before if before[stage] == after[stage]}
    assert {"anchor", "pool", "rollout_dev", "generate_questions", "rollout_questions", "leakage"} <= same
    assert {"dev_gradient", "score_influence", "update_generator", "update_solver", "rollout_dev/1"} & same == set()
