"""A stage that hangs is ended when its time is over, with its name, also where it hears no signal."""

import pytest
from fault_tools import store_without
from launcher import Launcher, SmallRun

from infuser_core.errors import ConfigError
from infuser_core.settings import DEFAULT, phase_seconds
from infuser_core.store.runs import Journal, is_held

pytestmark = pytest.mark.long


@pytest.mark.slow
@pytest.mark.parametrize("how", ["hang", "stuck"])
def test_a_hanging_stage_is_ended_and_named(launch: Launcher, small_run: SmallRun, tmp_path, how: str):
    store = store_without(small_run, tmp_path / "store", "judge")
    limits = {"INFUSER_PHASE_SECONDS": "600, judge=2"}
    ended = launch(*small_run.arguments, store=store, INFUSER_CRASH_AT=f"{how}@judge:inside", **limits)
    assert ended.code == 3, ended.err
    message, hint = ended.err.splitlines()
    assert message == "infuser: stage judge of run small took more than 2 s"
    assert "INFUSER_PHASE_SECONDS" in hint and "infuser resume small" in hint
    failed = [e for e in Journal(store, "small").last_attempt() if e.state == "failed"]
    assert [e.phase for e in failed] == ["judge"], "what hangs is not tried a second time"
    assert not is_held(store, "small")

    resumed = launch("resume", store=store)
    assert resumed.code == 0 and resumed.err == "", resumed.err
    assert launch("digest", store=store).out == launch("digest", "small", store=small_run.root).out


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
