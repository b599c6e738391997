"""What gc thinned out comes back bit by bit when somebody asks for it, or when a repair needs it."""

from pathlib import Path

import pytest
from care_tools import WEIGHTS, artifact_of, bits, copy_run, differing, doctor, flip
from launcher import Launcher, SmallRun

from infuser_core.store import pruned
from infuser_core.store.runs import Journal
from infuser_core.store.store import MANIFEST


def thinned(launch: Launcher, small_run: SmallRun, target: Path) -> Path:
    """The small run with nothing of its first update but the facts."""
    store = copy_run(small_run, target)
    ended = launch("gc", "--apply", "--keep-full", "1", store=store)
    assert ended.code == 0, ended.err
    for phase in ("update_solver", "update_generator"):
        folder = artifact_of(store, "small", phase, 0)
        assert not (folder / WEIGHTS).exists() and len(pruned.read(folder)) == 2
    return store


@pytest.mark.slow
def test_a_pruned_checkpoint_is_computed_again_to_the_same_bits(launch: Launcher, small_run: SmallRun, tmp_path: Path):
    store = thinned(launch, small_run, tmp_path / "store")
    resumed = launch("resume", "small", store=store)
    assert resumed.code == 0 and "0 ran" in resumed.out, "a finished run needs no old checkpoint"
    refused = launch("eval", "--model", "small@1", "--benchmarks", "nano", store=store)
    assert refused.code == 3 and "was pruned by gc" in refused.err and "infuser repair" in refused.err

    repaired = launch("repair", "small", "--iteration", "1", store=store)
    assert repaired.code == 0, repaired.err
    ran = [entry for entry in Journal(store, "small").last_attempt() if entry.state == "ran"]
    assert {(entry.phase, entry.iteration) for entry in ran} == {("update_solver", 0), ("update_generator", 0)}
    for phase in ("update_solver", "update_generator"):
        ours, theirs = (bits(artifact_of(root, "small", phase, 0)) for root in (store, small_run.root))
        assert {**ours, MANIFEST: b""} == {**theirs, MANIFEST: b""}
    assert differing(small_run, store) == []
    assert doctor(launch, store)["damage"] == []


@pytest.mark.slow
@pytest.mark.long
def test_a_repair_restores_the_pruned_checkpoints_that_it_needs(launch: Launcher, small_run: SmallRun, tmp_path: Path):
    store = thinned(launch, small_run, tmp_path / "store")
    harmed = artifact_of(store, "small", "update_solver", 1)
    flip(harmed, "optimizer.safetensors")
    repaired = launch("repair", "small", store=store)
    assert repaired.code == 0, repaired.err
    assert f"computed again {harmed.name}: the same digest" in repaired.out
    assert f"restored {artifact_of(store, 'small', 'update_solver', 0).name}" in repaired.out
    assert not (artifact_of(store, "small", "update_generator", 0) / WEIGHTS).exists(), "it was not needed"
    folder = artifact_of(small_run.root, "small", "update_solver", 1)
    assert {**bits(harmed), MANIFEST: b""} == {**bits(folder), MANIFEST: b""}
    assert doctor(launch, store)["damage"] == []
