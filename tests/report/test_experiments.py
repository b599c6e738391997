"""`make experiments-nano` runs sweep files that exist, over three seeds, against a variant that they have."""

import runpy
from pathlib import Path
from typing import Any

import pytest
from places import TESTS

from infuser_core.planning.sweeps import read_sweeps

SCRIPT = TESTS / "bench" / "experiments.py"
MADE = runpy.run_path(str(SCRIPT))
EXPERIMENTS: tuple[Any, ...] = MADE["EXPERIMENTS"]


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda experiment: experiment.file)
def test_a_sweep_has_its_reference_and_the_same_seeds_of_every_variant(experiment: Any):
    runs = read_sweeps([Path(experiment.path)], against=experiment.reference)
    seeds: dict[str, list[int]] = {}
    for config in runs:
        seeds.setdefault(config.label, []).append(config.seed)
    assert len(seeds) > 1
    (common,) = {tuple(found) for found in seeds.values()}
    assert len(common) >= 3


def test_no_sweep_of_the_nano_lab_is_left_out():
    folder = Path(EXPERIMENTS[0].path).parent
    known = {
        *MADE["STUDIED"],
        *MADE["SETTINGS"],
        *MADE["AT_EQUAL_COMPUTE"],
        *(experiment.file for experiment in EXPERIMENTS),
    }
    assert {path.name for path in folder.glob("nano*.yaml")} == known
