"""A branch runs beside the main line; the first failure, or a signal, ends both at their safe points."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from launcher import ROOT

from infuser_core.config.overlays import load
from infuser_core.planning.place import parse_places
from tasks.interrupts import alongside
from tasks.run import Run, current_run, open_run, override_run
from tasks.run_control import Halted, LookUp, RunControl

LONG = 20.0


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """An open run whose phases may overlap."""
    monkeypatch.setenv("INFUSER_STORE", str(tmp_path))
    with open_run("lanes", load([ROOT / "configs" / "nano.yaml"], ["engine.overlap=true"])) as run:
        yield run


def until_halted(run: Run, ended: list[str]) -> Callable[[], None]:
    """A stage with safe points that never ends by itself."""

    def branch() -> None:
        try:
            for _ in range(int(LONG / 0.02)):
                time.sleep(0.02)
                run.control.halt.check()
        finally:
            ended.append("branch")

    return branch


def fail(message: str) -> None:
    raise ValueError(message)


def test_a_branch_and_the_main_line_run_at_the_same_time(run: Run):
    meet = threading.Barrier(2, timeout=LONG)
    with alongside("lanes") as lane:
        made = lane.start(lambda: (meet.wait(), "made")[1])
        meet.wait()
    assert made.result() == "made"


def test_branches_of_a_lane_follow_each_other(run: Run):
    order: list[int] = []
    with alongside("lanes") as lane:
        for number in range(5):
            lane.start(order.append, number)
    assert order == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("why", ["a look-up", "a run to a place", "the setting"])
def test_elsewhere_a_branch_runs_in_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str):
    monkeypatch.setenv("INFUSER_STORE", str(tmp_path))
    overlap = "false" if why == "the setting" else "true"
    config = load([ROOT / "configs" / "nano.yaml"], [f"engine.overlap={overlap}"])
    with open_run("lanes", config) as run:
        controls = {
            "a run to a place": RunControl(last=parse_places(until="rollout_dev@0").until),
            "a look-up": LookUp(run.control, run.store),
        }
        with override_run(replace(run, control=controls.get(why, run.control))), alongside("lanes") as lane:
            here = lane.start(threading.get_ident)
            assert here.result() == threading.get_ident()
            with pytest.raises(ValueError, match="at once"):
                lane.start(fail, "at once")


def test_a_failing_branch_ends_the_main_line_and_is_the_reason(run: Run):
    ended: list[str] = []
    with pytest.raises(ValueError, match="the dev gradient"):
        with alongside("lanes") as lane:
            lane.start(fail, "the dev gradient")
            until_halted(run, ended)()
    assert ended == ["branch"]


def test_a_failing_main_line_ends_the_branch_first_and_is_the_reason(run: Run):
    ended: list[str] = []
    with pytest.raises(ValueError, match="the questions"):
        with alongside("lanes") as lane:
            lane.start(until_halted(run, ended))
            fail("the questions")
    assert ended == ["branch"], "nobody goes on behind the back of a run that has ended"


def test_a_branch_of_an_outer_lane_ends_the_inner_ones(run: Run):
    ended: list[str] = []
    with pytest.raises(ValueError, match="the validation"):
        with alongside("lanes") as outer:
            outer.start(fail, "the validation")
            with alongside("lanes") as inner:
                inner.start(until_halted(run, ended))
                until_halted(run, ended)()
    assert ended == ["branch", "branch"]


def test_what_was_made_is_known_only_once_the_branch_has_ended(run: Run):
    go = threading.Event()
    with alongside("lanes") as lane:
        late = lane.start(lambda: go.wait(LONG))
        assert not late.done()
        go.set()
    assert late.result()


def test_a_signal_during_the_wait_ends_the_branch_at_its_next_safe_point(run: Run):
    ended: list[str] = []
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        with alongside("lanes") as lane:
            lane.start(until_halted(run, ended))
    assert ended == ["branch"] and time.monotonic() - started < LONG / 2


def test_a_look_up_in_one_thread_is_none_in_the_other(run: Run):
    looked, go = threading.Event(), threading.Event()

    def branch() -> bool:
        looked.set()
        go.wait(LONG)
        return current_run("lanes").control.executes

    with alongside("lanes") as lane:
        there = lane.start(branch)
        looked.wait(LONG)
        with override_run(replace(run, control=LookUp(run.control, run.store))):
            assert not current_run("lanes").control.executes
            go.set()
            lane.wait()
    assert there.result() is True


def test_a_run_that_ends_stays_ended(run: Run):
    run.control.halt.call("first")
    run.control.halt.call("second")
    with pytest.raises(Halted, match=r"^first$"):
        run.control.halt.check()
