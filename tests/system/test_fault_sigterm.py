"""SIGTERM stops a run at the next safe point with exit code 143 and a line that says how to go on."""

import signal

import pytest
from fault_tools import eventually, is_stopped, store_without
from launcher import Launcher, SmallRun

from infuser_core.store.runs import Journal, is_held


@pytest.mark.slow
def test_sigterm_ends_a_stage_at_its_next_safe_point(launch: Launcher, small_run: SmallRun, tmp_path):
    store = store_without(small_run, tmp_path / "store", "judge")
    running = launch.start(*small_run.arguments, store=store, INFUSER_CRASH_AT="stop@judge:inside")
    eventually(lambda: is_stopped(running.pid), "the judge to be at work")
    running.kill(signal.SIGTERM)
    running.kill(signal.SIGCONT)
    ended = running.wait()
    assert ended.code == 143, ended
    assert ended.err.splitlines() == [
        "infuser: stopped by SIGTERM",
        "  hint: `infuser resume small` continues from the last completed stage",
    ]
    assert not is_held(store, "small")
    assert list((store / ".staging").iterdir()) == []

    resumed = launch("resume", store=store)
    assert resumed.code == 0 and resumed.err == "", "who left cleanly leaves no message"
    assert launch("digest", store=store).out == launch("digest", "small", store=small_run.root).out


@pytest.mark.slow
def test_a_stage_without_a_safe_point_inside_is_finished_first(launch: Launcher, small_run: SmallRun, tmp_path):
    store = store_without(small_run, tmp_path / "store", "pool", "anchor")
    running = launch.start(*small_run.arguments, store=store, INFUSER_CRASH_AT="stop@pool:before_commit")
    eventually(lambda: is_stopped(running.pid), "the pool to be committed")
    running.kill(signal.SIGTERM)
    running.kill(signal.SIGCONT)
    assert running.wait().code == 143
    last = Journal(store, "small").last_attempt()[-1]
    assert (last.phase, last.state) == ("pool", "ran")
