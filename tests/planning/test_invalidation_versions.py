"""Another VERSION of a module's code computes again the stages of that module, and what is made from them.

The golden table holds, for every VERSION in the code, the stages whose own recipe it enters.
"""

import ast
import json
import os
from importlib import import_module
from pathlib import Path

import places
import pytest
from everything_stored import base_of, changed, recipes
from places import ROOT

from infuser_core.config.overlays import merge, validate

GOLDEN = places.GOLDEN / "invalidation_versions.json"
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
        GOLDEN.write_text(json.dumps(found, indent=1) + "\n")
    golden = json.loads(GOLDEN.read_text())
    assert found == golden, (
        "is that meant? Then INFUSER_REFRESH_GOLDEN=1 .venv/bin/pytest tests/planning/test_invalidation_versions.py"
    )


def test_every_stage_has_a_version_and_every_version_a_stage(world: Path):
    golden = json.loads(GOLDEN.read_text())
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
