"""`make experiments-nano` runs sweeps that exist, over the same seeds of every arm."""

import runpy
from typing import Any

import pytest
from places import ROOT, TESTS

from infuser_core.planning.sweeps import read_sweep

FOLDER = ROOT / "configs" / "sweep"


@pytest.fixture
def experiments(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.syspath_prepend(str(TESTS / "bench"))
    return runpy.run_path(str(TESTS / "bench" / "experiments.py"))


def test_a_sweep_of_a_claim_has_the_same_seeds_of_every_arm_and_a_random_reward(experiments: dict[str, Any]):
    for name in experiments["CLAIMS"]:
        seeds: dict[str, list[int]] = {}
        for config in read_sweep(FOLDER / f"{name}.yaml"):
            seeds.setdefault(config.variant, []).append(config.seed)
        (common,) = {tuple(each) for each in seeds.values()}
        assert len(common) >= 3
        assert any(arm.split("-")[-1] == "random" for arm in seeds)


def test_no_sweep_of_the_nano_lab_is_left_out(experiments: dict[str, Any]):
    groups = ("CLAIMS", "SETTINGS", "STUDIED", "AT_EQUAL_COMPUTE")
    assert {path.stem for path in FOLDER.glob("nano*.yaml")} == {
        name for group in groups for name in experiments[group]
    }
