"""Stages that raise, hang, are stopped, killed or robbed of their workspace: named, and resumed to the same bits."""

import shutil
import signal
import time

import pytest
from fault_tools import Faults, eventually, is_stopped

from infuser_core.errors import ConfigError
from infuser_core.settings import DEFAULT, phase_seconds
from infuser_core.store.runs import is_held

AT_WORK = "stop@judge:inside"


@pytest.mark.slow
def test_a_stage_that_raises_is_named_and_the_run_goes_on(faults: Faults):
    faults.without("judge")
    message, hint = faults.start(INFUSER_CRASH_AT="raise@judge:inside").fails_with(3)
    assert message == "infuser: stage judge of run small failed: RuntimeError: told to fail at judge:inside"
    assert "infuser resume small" in hint
    entries = faults.journal.last_attempt()
    # Tried twice: what failed once may have been bad luck.
    assert [(e.phase, e.state) for e in entries if e.state != "cached"] == [("judge", "failed")] * 2
    assert "told to fail" in entries[-1].message
    assert "failed in judge" in faults.launch("runs", store=faults.store).out
    faults.resumes()
    assert {e.phase for e in faults.journal.last_attempt() if e.state == "ran"} == {"judge"}


@pytest.mark.slow
def test_sigterm_ends_a_stage_at_its_next_safe_point(faults: Faults):
    faults.without("judge")
    running = faults.begin(INFUSER_CRASH_AT=AT_WORK)
    eventually(lambda: is_stopped(running.pid), "the judge to be at work")
    running.kill(signal.SIGTERM)
    running.kill(signal.SIGCONT)
    ended = running.wait()
    assert (ended.code, ended.err.splitlines()) == (
        143,
        ["infuser: stopped by SIGTERM", "  hint: `infuser resume small` continues from the last completed stage"],
    )
    assert not is_held(faults.store, "small")
    assert list((faults.store / ".staging").iterdir()) == []
    assert faults.resumes().err == "", "who left cleanly leaves no message"


@pytest.mark.slow
def test_ctrl_c_waits_for_the_end_of_a_stage_without_a_safe_point(faults: Faults):
    faults.without("pool", "anchor")
    running = faults.begin(INFUSER_CRASH_AT="stop@pool:start")
    eventually(lambda: is_stopped(running.pid), "the pool to be filled")
    running.kill(signal.SIGINT)
    running.kill(signal.SIGCONT)
    ended = running.wait()
    assert ended.code == 130, ended
    assert ended.err.splitlines()[0] == "infuser: interrupted" and "infuser resume" in ended.err.splitlines()[1]
    last = faults.journal.last_attempt()[-1]
    assert (last.phase, last.state) == ("pool", "ran")


@pytest.mark.slow
def test_a_second_ctrl_c_does_not_wait(faults: Faults):
    faults.without("judge")
    running = faults.begin(INFUSER_CRASH_AT="hang@judge:inside")
    eventually(lambda: any((faults.store / ".staging").glob("judge-*")), "the judge to be at work")
    time.sleep(1.0)
    running.kill(signal.SIGINT)
    time.sleep(1.0)
    assert is_held(faults.store, "small"), "the first waits"
    running.kill(signal.SIGINT)
    ended = running.wait()
    assert ended.code == 130, ended
    assert ended.err.splitlines()[0] == "infuser: interrupted"
    assert list((faults.store / ".staging").iterdir()) == [] and not is_held(faults.store, "small")


@pytest.mark.long
@pytest.mark.parametrize("how", ["hang", "stuck"])
def test_a_hanging_stage_is_ended_and_named_also_where_it_hears_no_signal(faults: Faults, how: str):
    faults.without("judge")
    limits = {"INFUSER_PHASE_SECONDS": "600, judge=2"}
    message, hint = faults.start(INFUSER_CRASH_AT=f"{how}@judge:inside", **limits).fails_with(3)
    assert message == "infuser: stage judge of run small took more than 2 s"
    assert "INFUSER_PHASE_SECONDS" in hint and "infuser resume small" in hint
    failed = [e for e in faults.journal.last_attempt() if e.state == "failed"]
    assert [e.phase for e in failed] == ["judge"], "what hangs is not tried a second time"
    assert not is_held(faults.store, "small")
    assert faults.resumes().err == ""


@pytest.mark.parametrize(
    ("text", "judge", "other"),
    [("", DEFAULT, DEFAULT), ("0", None, None), ("5", 5.0, 5.0), ("judge=7", 7.0, DEFAULT), ("5,judge=0", None, 5.0)],
)
def test_limits_are_read_from_the_environment(monkeypatch, text: str, judge: float | None, other: float | None):
    monkeypatch.setenv("INFUSER_PHASE_SECONDS", text)
    assert (phase_seconds("judge"), phase_seconds("other")) == (judge, other)


@pytest.mark.parametrize("text", ["soon", "judge=", "-1", "nan", "inf", "1,judge=x"])
def test_a_limit_that_is_no_number_is_refused(monkeypatch, text: str):
    monkeypatch.setenv("INFUSER_PHASE_SECONDS", text)
    with pytest.raises(ConfigError) as caught:
        phase_seconds("judge")
    assert text in caught.value.message and "3600" in caught.value.hint


@pytest.mark.long
def test_the_next_start_says_what_was_killed_for_want_of_memory_and_where(faults: Faults):
    faults.without("judge")
    running = faults.begin(INFUSER_CRASH_AT=AT_WORK)
    eventually(lambda: is_stopped(running.pid), "the judge to be at work")
    running.kill(signal.SIGKILL)  # what the kernel does for want of memory
    assert running.wait().code == -signal.SIGKILL
    (line,) = faults.resumes().err.splitlines()
    assert line.startswith(f"infuser: run small: process {running.pid} on ")
    assert "was killed in judge; continuing from its last completed stage" in line
    (killed,) = [entry for entry in faults.journal.entries() if entry.state == "killed"]
    assert (killed.attempt, killed.phase, killed.iteration) == (1, "judge", -1)
    assert faults.resumes().err == "", "said once"


@pytest.mark.long
@pytest.mark.parametrize("point", ["judge:before_commit", "update_solver:before_commit", "judge:before_rename"])
def test_a_staging_folder_that_somebody_empties_costs_one_stage(faults: Faults, point: str):
    faults.without("judge", "update_solver")
    running = faults.begin(INFUSER_CRASH_AT=f"stop@{point}")
    eventually(lambda: is_stopped(running.pid), "the stage to be at work")
    shutil.rmtree(faults.store / ".staging")
    running.kill(signal.SIGCONT)
    ended = running.wait()
    assert ended.code == 0, ended.err
    failed = [entry for entry in faults.journal.entries() if entry.state == "failed"]
    assert [entry.phase for entry in failed] == [point.partition(":")[0]]
    assert "No such file" in failed[0].message
    faults.has_the_same_bits()
