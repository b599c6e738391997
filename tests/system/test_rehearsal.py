"""`infuser rehearse`: a sound configuration passes, and each of six faults is named by the step that meets it."""

import json
import os
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from launcher import Launcher
from places import ROOT

from infuser_core.config.overlays import load
from infuser_core.planning.hours import SAMPLING, GroupWork
from infuser_core.planning.setup import Setup
from infuser_core.planning.timings import read_utilisations
from tasks.rehearsal.accelerators import Meter
from tasks.rehearsal.steps import Rehearsal, rehearse
from tasks.rehearsal.table import FAILED, PASSED, UNREACHED, Line, as_text, as_yaml, extrapolate

NANO = ROOT / "configs/nano.yaml"
SMALL = ["cotrain.group_size=4", "cotrain.prompt_tokens=48", "cotrain.generator_tokens=24"]
RANKS = ROOT / "configs/engine/deepspeed-cpu.yaml"
LIMIT = 300.0
"""Seconds within which a rehearsal of the nano lab ends."""
FAULTS = {
    "model": ("anchor={type: folder, path: /nowhere}", {}),
    "sampler start": ("engine.sampler=vllm", {"INFUSER_VLLM_PYTHON": "/nowhere/python"}),
    "trainer start": ("engine.trainer=fake", {}),
    "proof": ("engine.sampler=fake", {}),
    "weight change": ("seed=42", {"INFUSER_CRASH_AT": "raise@checkpoint:load-sampler-solver:2"}),
    "kill and resume": ("seed=42", {"INFUSER_CRASH_AT": "raise@checkpoint:load-trainer-solver:2"}),
}


Rehearsed = Callable[..., dict[str, Line]]


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory: pytest.TempPathFactory) -> Rehearsed:
    """`rehearsed(*changes, **environment)`: the lines of a small rehearsal by step, done once, with nothing left."""

    @cache
    def run(*changes: str, **environment: str) -> dict[str, Line]:
        store = tmp_path_factory.mktemp("rehearsal")
        with pytest.MonkeyPatch.context() as patch:
            for name, value in {**environment, "INFUSER_STORE": str(store)}.items():
                patch.setenv(name, value)
            lines, *_ = rehearse(load([NANO], [*SMALL, *changes]))
        assert list(store.glob("rehearsal-*")) == []
        return {line.step: line for line in lines}

    return run


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """While this file exists, the second of two devices holds 3,000 MiB in use by others; else each holds 1,000."""
    folder = tmp_path_factory.mktemp("driver")
    driver = folder / "nvidia-smi"
    driver.write_text(
        f"""#!{sys.executable}
import pathlib, time
while True:
    used = 3000 if pathlib.Path({str(folder)!r}, "busy").exists() else 1000
    print(f"0, 1000\\n1, {{used}}\\n2, [N/A]")
    time.sleep(0.01)
"""
    )
    driver.chmod(0o755)
    return folder / "busy"


def path_with(busy: Path) -> str:
    return f"{busy.parent}:{os.environ['PATH']}"


def test_a_sound_configuration_passes_every_step(rehearsed: Rehearsed, busy: Path):
    lines = rehearsed(PATH=path_with(busy))
    assert {line.status for line in lines.values()} == {PASSED}
    assert {"generation", "dev gradient", "scoring", "update", "save", "proof", "kill and resume"} < set(lines)
    # 2 groups of one prompt and four responses, every one as long as it may be.
    assert lines["update"].tokens == 2 * (48 + 4 * 24)
    assert lines["update"].accelerator is not None and "GPU GB" in as_text([*lines.values()], None, None)


@pytest.mark.parametrize("step", FAULTS)
def test_a_broken_engine_fails_at_its_own_step_alone(step: str, rehearsed: Rehearsed):
    change, environment = FAULTS[step]
    lines = rehearsed(change, **environment)
    assert [name for name, line in lines.items() if line.status == FAILED] == [step]
    assert f"{step} failed: {lines[step].told}" in as_text([*lines.values()], None, None)


def test_a_step_after_a_failed_one_says_what_it_needs(rehearsed: Rehearsed):
    lines = rehearsed("engine.trainer=fake")
    assert (lines["update"].status, lines["update"].told) == (UNREACHED, "needs trainer start")


def test_the_most_that_an_accelerator_holds_is_in_the_line_of_its_step(busy: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", path_with(busy))
    with Meter() as meter:
        time.sleep(1)
        with meter.step() as before:
            time.sleep(0.5)
        busy.touch()
        with meter.step() as during:
            time.sleep(0.5)
    busy.unlink()
    assert before == [0.0] and during == [2000 * 2**20 / 1e9]


def test_what_an_accelerator_takes_for_the_first_use_of_a_kernel_is_in_no_line(tmp_path: Path):
    made = Rehearsal(load([NANO], SMALL), tmp_path)
    made._step("scoring", (), lambda: (0, "scored"), lambda: time.sleep(2.0))
    (line,) = made.lines
    assert (line.status, line.told) == (PASSED, "scored") and line.seconds < 1.0


WORK = GroupWork(groups=2, rows=4, prompt=48, response=24)
TIMED = {"generation": 2.0, "dev gradient": 0.5, "scoring": 0.25, "save": 3.0}


def timed(**status: str) -> list[Line]:
    return [Line(step=step, status=status.get(step, PASSED), seconds=seconds) for step, seconds in TIMED.items()]


def test_the_run_takes_the_rehearsed_seconds_by_the_work_of_its_phases(tmp_path: Path):
    setup = Setup.of(load([NANO], SMALL), "1xH100")
    run = extrapolate(setup.config, setup.shape, timed(), sampled=WORK, trained=WORK)
    assert run is not None
    for phase in setup.phases:
        if phase.name.startswith(("rollout", "generate")):
            scale = phase.work.forward(setup.shape) / WORK.forward(setup.shape)
            assert run.phases[phase.name] == pytest.approx(2.0 * scale)
    assert run.phases["save"] == 6.0, "both roles write a checkpoint"
    assert run.iteration == pytest.approx(sum(run.phases.values()))
    assert run.hours == pytest.approx(run.iteration * run.iterations / 3600)
    path = tmp_path / "rehearsed.yaml"
    path.write_text(as_yaml(run, setup))
    value, source = read_utilisations(path)[SAMPLING]
    assert value == pytest.approx(WORK.forward(setup.shape) / 2.0 / 989e12, rel=1e-3) and str(path) in source


def test_nothing_is_extrapolated_from_a_step_that_failed():
    setup = Setup.of(load([NANO], SMALL), "1xH100")
    assert extrapolate(setup.config, setup.shape, timed(scoring=FAILED), sampled=WORK, trained=WORK) is None


@pytest.mark.distributed
def test_two_ranks_are_rehearsed_and_one_is_killed(launch: Launcher, tmp_path: Path):
    started = launch.start("rehearse", "--json", str(NANO), str(RANKS), store=tmp_path, PYTHONPATH=str(ROOT))
    done = started.wait(LIMIT)
    assert done.code == 0, done
    told = {line["step"]: line["told"] for line in json.loads(done.out)["lines"]}
    assert "killed; its files are the same bit for bit" in told["kill and resume"]
