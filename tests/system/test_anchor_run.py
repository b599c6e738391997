"""A run whose updates keep near the anchor: killed and resumed bit for bit, and the anchor is among their inputs."""

import json
import signal
from pathlib import Path

import pytest
from crash_points import begun, content, mismatches, orphans
from launcher import Launcher, SmallRun

from infuser_core.store.journal import Journal
from infuser_core.store.recipe import MANIFEST

KL = ("--set", "cotrain.loss.kl=0.1")


@pytest.mark.slow
def test_a_killed_run_ends_in_the_same_bits(launch: Launcher, small_run: SmallRun, tmp_path: Path) -> None:
    arguments = [*small_run.arguments[:-1], "near", *KL]
    stores = [begun(small_run, tmp_path / place) for place in ("whole", "killed")]
    assert (ended := launch(*arguments, store=stores[0])).code == 0, ended.err
    for kill in ("update_generator:inside", "update_solver:inside", "update_solver:before_rename"):
        assert launch(*arguments, store=stores[1], INFUSER_CRASH_AT=kill).code == -signal.SIGKILL, kill
        arguments = ["resume", "near"]
    assert (ended := launch(*arguments, store=stores[1])).code == 0, ended.err
    assert list(orphans(stores[1])) == []
    assert mismatches(*(content(store, "near") for store in stores)) == []
    for entry in Journal(stores[0], "near").latest():
        record = json.loads((stores[0] / "artifacts" / entry.phase / entry.key / MANIFEST).read_text())
        assert ("anchor" in record["recipe"]["inputs"]) == entry.phase.startswith("update_")
