"""Somebody empties the staging folder under a running stage: it is computed again, by itself, to the same bits."""

import shutil
import signal

import pytest
from fault_tools import eventually, is_stopped, store_without
from launcher import Launcher, SmallRun

from infuser_core.store.runs import Journal

pytestmark = pytest.mark.long


@pytest.mark.slow
@pytest.mark.parametrize("point", ["judge:before_commit", "update_solver:before_commit", "judge:before_rename"])
def test_a_lost_staging_folder_costs_one_stage(launch: Launcher, small_run: SmallRun, tmp_path, point: str):
    store = store_without(small_run, tmp_path / "store", "judge", "update_solver")
    running = launch.start(*small_run.arguments, store=store, INFUSER_CRASH_AT=f"stop@{point}")
    eventually(lambda: is_stopped(running.pid), "the stage to be at work")
    shutil.rmtree(store / ".staging")
    running.kill(signal.SIGCONT)
    ended = running.wait()
    assert ended.code == 0, ended.err
    failed = [entry for entry in Journal(store, "small").entries() if entry.state == "failed"]
    assert [entry.phase for entry in failed] == [point.partition(":")[0]]
    assert "No such file" in failed[0].message
    assert launch("digest", store=store).out == launch("digest", "small", store=small_run.root).out
