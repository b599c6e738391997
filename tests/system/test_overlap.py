"""Phases that overlap: a second lane, and a run with it, give the same artifacts."""

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fault_tools import eventually, is_stopped, store_without
from launcher import ROOT, Launcher, SmallRun

from infuser_core.config.overlays import load
from infuser_core.planning.place import parse_places
from infuser_core.store.journal import Entry, Journal
from infuser_core.store.runs import is_held
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


LOOP = (
    "respond",
    "validate",
    "rollout_dev",
    "dev_gradient",
    "generate_questions",
    "rollout_questions",
    "score_influence",
    "update_generator",
    "update_solver",
    "select",
    "evaluate",
)
LATER = ("generate_questions", "rollout_questions", "score_influence", "update_generator", "update_solver")
"""Phases that write a checkpoint, or sample from one of an earlier iteration."""
LOAD = "checkpoint:load-"
OVERLAP = ("--set", "engine.overlap=true")


def entries(store: Path, *states: str) -> list[Entry]:
    return [entry for entry in Journal(store, "small").last_attempt() if entry.state in states]


def digests(launch: Launcher, store: Path) -> str:
    ended = launch("status", "--digest", "small", store=store)
    assert ended.code == 0, ended.err
    return ended.out


@pytest.mark.slow
def test_overlap_gives_the_same_bits_and_no_more_loads(launch: Launcher, small_run: SmallRun, tmp_path: Path):
    store, points = store_without(small_run, tmp_path / "store", *LOOP), tmp_path / "points"
    # The anchor's validation ends only when the first iteration has begun: phases in turn would wait in vain.
    meets = "until-rollout_dev:start@validate:start"
    ended = launch(*small_run.arguments, *OVERLAP, store=store, INFUSER_POINTS=str(points), INFUSER_CRASH_AT=meets)
    assert ended.code == 0, ended.err
    assert digests(launch, store) == digests(launch, small_run.root)

    passed = points.read_text().split()
    assert passed.index("generate_questions:start") < passed.index("dev_gradient:before_commit")
    assert passed.index("rollout_dev:start") < passed.index("validate:before_commit")
    # Samplers take each checkpoint once, and what is evaluated again; trainers load the anchor and train on.
    evaluated = sum(entry.phase == "evaluate" for entry in entries(store, "ran"))
    loads = Counter(line.removeprefix(LOAD) for line in passed if line.startswith(LOAD))
    once = {"trainer-solver": 1, "trainer-generator": 1}
    assert loads == {"sampler-solver": 3 + evaluated, "sampler-generator": 2, **once}


@pytest.mark.slow
def test_a_checkpoint_is_committed_beside_the_next_update_and_a_kill_meanwhile_changes_no_bit(
    launch: Launcher, small_run: SmallRun, tmp_path: Path
):
    beside = ("--set", "engine.write_beside=true")
    store = store_without(small_run, tmp_path / "store", *LATER)
    running = launch.start(
        *small_run.arguments, *beside, store=store, INFUSER_CRASH_AT="stop@update_generator:before_rename"
    )
    eventually(lambda: is_stopped(running.pid), "the generator's checkpoint to be written")
    running.kill(signal.SIGKILL)
    running.wait()
    assert "update_generator" not in [entry.phase for entry in entries(store, "ran")]
    # The generator's checkpoint lies complete only when the solver's update has begun: in turn it would wait in vain.
    meets = "until-update_solver:start@update_generator:before_rename"
    resumed = launch("resume", store=store, INFUSER_POINTS=str(tmp_path / "points"), INFUSER_CRASH_AT=meets)
    assert resumed.code == 0, resumed.err
    assert digests(launch, store) == digests(launch, small_run.root)


@pytest.mark.slow
def test_the_dev_gradient_is_committed_beside_generation(launch: Launcher, small_run: SmallRun, tmp_path: Path):
    wanted, points = ("rollout_dev", "dev_gradient", "generate_questions"), tmp_path / "points"
    store = store_without(small_run, tmp_path / "store", *wanted)
    beside = ("--set", "engine.write_beside=true")
    # Its file lies complete only when questions are generated: in turn it would wait in vain.
    meets = "until-generate_questions:start@dev_gradient:before_rename"
    ended = launch(*small_run.arguments, *beside, store=store, INFUSER_POINTS=str(points), INFUSER_CRASH_AT=meets)
    assert ended.code == 0, ended.err
    passed = points.read_text().split()
    assert passed.index("rollout_dev:after_rename") < passed.index("generate_questions:start")
    assert digests(launch, store) == digests(launch, small_run.root)


@pytest.mark.long
def test_overlap_survives_a_failure_a_kill_and_a_signal(launch: Launcher, small_run: SmallRun, tmp_path: Path):
    store = store_without(small_run, tmp_path / "store", *LOOP)
    failed = launch(*small_run.arguments, *OVERLAP, store=store, INFUSER_CRASH_AT="raise@dev_gradient:inside")
    assert failed.code == 3
    message = failed.err.splitlines()[0]
    assert (
        message == "infuser: stage dev_gradient of run small failed: RuntimeError: told to fail at dev_gradient:inside"
    )
    assert [(e.phase, e.iteration) for e in entries(store, "failed")] == [("dev_gradient", 0)] * 2
    assert not is_held(store, "small") and list((store / ".staging").iterdir()) == []
    assert "failed in dev_gradient" in launch("runs", store=store).out

    killed = launch("resume", store=store, INFUSER_CRASH_AT="dev_gradient:inside")
    assert killed.code == -signal.SIGKILL
    assert not is_held(store, "small")

    running = launch.start("resume", store=store, INFUSER_CRASH_AT="stop@dev_gradient:inside")
    eventually(lambda: is_stopped(running.pid), "the dev gradient to be computed")
    assert ("dev_gradient", 0) in [
        (e.phase, e.iteration) for e in Journal(store, "small").entries() if e.state == "killed"
    ]
    running.kill(signal.SIGINT)
    running.kill(signal.SIGCONT)
    ended = running.wait()
    assert ended.code == 130, ended
    assert "infuser: interrupted" in ended.err.splitlines()
    assert not is_held(store, "small") and list((store / ".staging").iterdir()) == []

    finished = launch("resume", store=store)
    assert finished.code == 0, finished.err
    assert digests(launch, store) == digests(launch, small_run.root)
    ran = Counter((e.phase, e.iteration, e.key) for e in Journal(store, "small").entries() if e.state == "ran")
    assert set(ran.values()) == {1}, "what was finished is not computed again"
