"""A stage that raises ends the run with its name and exit code 3; what was finished is kept, and the run goes on."""

import pytest
from fault_tools import store_without
from launcher import Launcher, SmallRun

from infuser_core.store.runs import Journal


@pytest.mark.slow
def test_a_stage_that_raises_is_named_and_the_run_goes_on(launch: Launcher, small_run: SmallRun, tmp_path):
    store = store_without(small_run, tmp_path / "store", "judge")
    failed = launch(*small_run.arguments, store=store, INFUSER_CRASH_AT="raise@judge:inside")
    assert failed.code == 3
    message, hint = failed.err.splitlines()
    assert message == "infuser: stage judge of run small failed: RuntimeError: told to fail at judge:inside"
    assert "infuser resume small" in hint

    entries = Journal(store, "small").last_attempt()
    # Tried twice: what failed once may have been bad luck.
    assert [(e.phase, e.state) for e in entries if e.state != "cached"] == [("judge", "failed")] * 2
    assert "told to fail" in entries[-1].message
    assert "failed in judge" in launch("runs", store=store).out

    resumed = launch("resume", store=store)
    assert resumed.code == 0, resumed.err
    assert {e.phase for e in Journal(store, "small").last_attempt() if e.state == "ran"} == {"judge"}
    assert launch("digest", store=store).out == launch("digest", "small", store=small_run.root).out
