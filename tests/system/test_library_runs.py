"""Runs that a script starts: followed, stopped, resumed, failed and killed; defaults are those of the commands."""

import inspect
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from launcher import SmallRun

import infuser_core as infuser
from flows.cli import score, study
from infuser_core.errors import BusyRunError, ConfigError, StageError, UsageError
from infuser_core.results.lineage.progress import AttemptPart

TINY = {
    "cotrain.iterations": 3, "cotrain.documents": 2, "data.dev.size": 4, "data.validation.size": 8,
    "evaluate.benchmarks": [],
}  # fmt: skip


def start(store: Path, **options: object) -> infuser.StartedRun:
    return infuser.start("nano", changes=TINY | options, name="tiny", store=store)


def test_a_finished_run_is_followed_to_its_end_from_anywhere(small_run: SmallRun):
    parts = list(infuser.follow("small", store=small_run.root))
    assert [part.part for part in parts][:2] == ["preparation", "0"] and parts[-1].part == "evaluation"
    assert all(isinstance(part, AttemptPart) and part.state in ("done", "cached") for part in parts)


def test_a_run_is_stopped_and_resumed_and_refuses_a_second_start(tmp_path: Path):
    run = start(tmp_path)
    assert next(iter(run.follow())).part == "preparation"
    with pytest.raises(BusyRunError, match="tiny"):
        start(tmp_path)
    run.stop()
    assert run.process.returncode != 0 and run.state != "running"
    lines: list[str] = []
    assert infuser.resume("tiny", store=tmp_path).wait(lines.append).state == "done"
    assert lines[0].startswith("preparation: cached") and "iteration 2: done" in "\n".join(lines)
    assert infuser.open_store(tmp_path).run("tiny").updates().num_rows >= 3


def test_a_run_that_fails_or_is_killed_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("INFUSER_CRASH_AT", "update_solver:before_commit")
    with pytest.raises(StageError, match="run tiny: killed by SIGKILL") as failure:
        start(tmp_path).wait(str)
    assert "infuser resume tiny" in failure.value.hint
    monkeypatch.delenv("INFUSER_CRASH_AT")
    artifact = next((tmp_path / "artifacts" / "rollout_dev").rglob("rollouts.parquet"))
    artifact.write_bytes(b"damaged")
    with pytest.raises(StageError, match=r"run tiny: .*rollout_dev.*does not match the digest"):
        infuser.resume("tiny", store=tmp_path).wait(str)


def test_it_goes_on_without_the_script(tmp_path: Path):
    run = start(tmp_path)
    assert os.getsid(run.process.pid) == run.process.pid != os.getsid(0)
    run.process.send_signal(signal.SIGKILL)
    run.process.wait()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda store: start(store, **{"cotrain.iteration": 1}), ConfigError, "cotrain.iteration = 1: unknown key"),
        (lambda store: infuser.start("no-such-file", store=store), ConfigError, "no-such-file"),
        (lambda store: infuser.resume("x", store=store), UsageError, "no run named x"),
        (lambda store: infuser.open_store(store / "none"), UsageError, "no store at"),
        (lambda store: infuser.read_book(store / "none.pdf"), infuser.InfuserError, "none.pdf"),
        (lambda store: infuser.read_book(__file__, converter="no such"), ConfigError, "read_book: type = 'no such'"),
        (lambda store: infuser.chunk_book("# A", min_tokens=9, max_tokens=8), ConfigError, "min_tokens 9 is above"),
        (lambda store: infuser.judge("1", "1", "sums"), UsageError, "judge: unknown kind 'sums'"),
    ],
)
def test_mistakes_are_refused_before_anything_starts(
    tmp_path: Path, call: Callable[[Path], object], error: type[Exception], message: str
):
    with pytest.raises(error, match=message.replace("(", r"\(")):
        call(tmp_path)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("command", "verb"), [(score.score, "score_questions"), (study.prediction, "study_prediction")]
)
def test_commands_and_functions_have_the_same_defaults(command: Callable[..., None], verb: str):
    shown, own = (inspect.signature(each).parameters for each in (command, getattr(infuser, verb)))
    shared = [name for name in own if name in shown and isinstance(shown[name].default, int | str)]
    assert len(shared) >= 3
    for name in shared:
        assert own[name].default == shown[name].default, name
