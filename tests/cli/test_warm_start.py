"""Commands forked from a process that has imported everything end as any process does, and are told apart."""

import os
import signal
from contextlib import closing
from pathlib import Path

import pytest
from launcher import ROOT

from flows.warm import LOST, Warm
from infuser_core.errors import EngineError


def test_forked_commands_have_their_own_output_and_exit_code(tmp_path: Path) -> None:
    with closing(Warm()) as warm:
        fine = warm.spawn(["--help"], log=tmp_path / "fine.log")
        wrong = warm.spawn(["run", str(tmp_path / "none.yaml")], log=tmp_path / "wrong.log")
        assert (fine.wait(), wrong.wait()) == (0, 2)
    assert "quickstart" in (tmp_path / "fine.log").read_text()
    assert "none.yaml" in (tmp_path / "wrong.log").read_text()


def test_one_can_be_ended_and_the_other_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFUSER_STORE", str(tmp_path / "store"))
    with closing(Warm()) as warm:
        long = warm.spawn(["run", str(ROOT / "configs" / "nano.yaml")], log=tmp_path / "long.log")
        assert long.poll() is None
        long.terminate()
        other = warm.spawn(["--help"], log=tmp_path / "other.log")
        assert long.wait() in (143, -signal.SIGTERM)
        assert other.wait() == 0


def test_nobody_waits_for_a_process_that_was_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFUSER_STORE", str(tmp_path / "store"))
    with closing(Warm()) as warm:
        lost = warm.spawn(["run", str(ROOT / "configs" / "nano.yaml")], log=tmp_path / "lost.log")
        os.kill(warm.pid, signal.SIGKILL)
        assert lost.wait() == LOST
        os.kill(lost.pid, signal.SIGKILL)
        with pytest.raises(EngineError, match="has ended"):
            warm.spawn(["--help"], log=tmp_path / "late.log")
