"""Phases that overlap give the bits of phases in turn, however the run is disturbed, and load nothing twice for it."""

import signal
from collections import Counter
from pathlib import Path

import pytest
from fault_tools import eventually, is_stopped, store_without
from launcher import Launcher, SmallRun

from infuser_core.store.journal import Entry, Journal
from infuser_core.store.runs import is_held

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
    store = store_without(small_run, tmp_path / "store", *LOOP)
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
    store, points = store_without(small_run, tmp_path / "store", *LOOP), tmp_path / "points"
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
