"""Ctrl-C stops a run at the next safe point with exit code 130; a second one stops it at once."""

import signal
import time

import pytest
from fault_tools import eventually, is_stopped, store_without
from launcher import Launcher, SmallRun

from infuser_core.store.runs import Journal, is_held


@pytest.mark.slow
def test_the_first_waits_for_a_safe_point(launch: Launcher, small_run: SmallRun, tmp_path):
    store = store_without(small_run, tmp_path / "store", "pool", "anchor")
    running = launch.start(*small_run.arguments, store=store, INFUSER_CRASH_AT="stop@pool:start")
    eventually(lambda: is_stopped(running.pid), "the pool to be filled")
    running.kill(signal.SIGINT)
    running.kill(signal.SIGCONT)
    ended = running.wait()
    assert ended.code == 130, ended
    assert ended.err.splitlines()[0] == "infuser: interrupted" and "infuser resume" in ended.err.splitlines()[1]
    last = Journal(store, "small").last_attempt()[-1]
    assert (last.phase, last.state) == ("pool", "ran"), "a stage without a safe point inside is finished"
    assert launch("resume", store=store).code == 0
    assert launch("digest", store=store).out == launch("digest", "small", store=small_run.root).out


@pytest.mark.slow
def test_the_second_does_not_wait(launch: Launcher, small_run: SmallRun, tmp_path):
    store = store_without(small_run, tmp_path / "store", "judge")
    running = launch.start(*small_run.arguments, store=store, INFUSER_CRASH_AT="hang@judge:inside")
    eventually(lambda: any((store / ".staging").glob("judge-*")), "the judge to be at work")
    time.sleep(1.0)
    running.kill(signal.SIGINT)
    time.sleep(1.0)
    assert is_held(store, "small"), "the first waits"
    running.kill(signal.SIGINT)
    ended = running.wait()
    assert ended.code == 130, ended
    assert ended.err.splitlines()[0] == "infuser: interrupted"
    assert list((store / ".staging").iterdir()) == [] and not is_held(store, "small")
    assert launch("resume", store=store).code == 0
    assert launch("digest", store=store).out == launch("digest", "small", store=small_run.root).out
