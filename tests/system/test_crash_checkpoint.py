"""A process killed while it saves a checkpoint leaves none, and the next one saves the same bytes."""

import signal
import time

import pytest
from fault_tools import store_without
from launcher import Launcher, SmallRun

from infuser_core.store.store import Store

pytestmark = pytest.mark.long


@pytest.mark.slow
@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "trainer.json"])
def test_half_a_checkpoint_is_none(launch: Launcher, small_run: SmallRun, tmp_path, name: str):
    store = store_without(small_run, tmp_path / "store", "update_solver")
    running = launch.start(*small_run.arguments, store=store)
    deadline = time.monotonic() + 120
    while not any((store / ".staging").glob(f"update_solver-*/{name}")):
        assert time.monotonic() < deadline, "no checkpoint was saved"
        time.sleep(0.0005)
    running.kill(signal.SIGKILL)
    assert running.wait().code == -signal.SIGKILL
    # The first update's; the second's needs the first.
    assert len(list((store / "artifacts").glob("update_solver/*"))) <= 1
    for ref in Store(store).refs():
        Store(store).verified_folder(ref)

    assert launch("resume", store=store).code == 0
    assert launch("digest", store=store).out == launch("digest", "small", store=small_run.root).out
