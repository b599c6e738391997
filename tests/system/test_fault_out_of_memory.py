"""A process that the kernel kills cannot say so. Whoever goes on with its run does."""

import signal

import pytest
from fault_tools import eventually, is_stopped, store_without
from launcher import Launcher, SmallRun

from infuser_core.store.runs import Journal

pytestmark = pytest.mark.long


@pytest.mark.slow
def test_the_next_start_says_what_was_killed_and_where(launch: Launcher, small_run: SmallRun, tmp_path):
    store = store_without(small_run, tmp_path / "store", "judge")
    running = launch.start(*small_run.arguments, store=store, INFUSER_CRASH_AT="stop@judge:inside")
    eventually(lambda: is_stopped(running.pid), "the judge to be at work")
    running.kill(signal.SIGKILL)  # what the kernel does for want of memory
    assert running.wait().code == -signal.SIGKILL

    resumed = launch("resume", store=store)
    assert resumed.code == 0
    (line,) = resumed.err.splitlines()
    assert line.startswith(f"infuser: run small: process {running.pid} on ")
    assert "was killed in judge; going on from its last completed stage" in line
    (killed,) = [entry for entry in Journal(store, "small").entries() if entry.state == "killed"]
    assert (killed.attempt, killed.phase, killed.iteration) == (1, "judge", -1)
    assert launch("digest", store=store).out == launch("digest", "small", store=small_run.root).out
    assert launch("resume", store=store).err == "", "said once"
