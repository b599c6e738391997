"""A run says what it does: lines for people, `log.txt` and `metrics.jsonl`, which nothing can make it stumble over."""

import io
import json
import os
import re
import sys
import warnings
from pathlib import Path

import pytest
from launcher import Launcher, SmallRun, copy_store

from infuser_core.errors import DataWarning
from infuser_core.results.trackers.parts.files import Lines, points_in, redacted
from infuser_core.results.trackers.parts.points import in_words, metrics_of
from infuser_core.results.trackers.parts.run_log import RemainingTime, RunLog, place_of
from infuser_core.store.journal import Journal
from infuser_core.store.recipe import Recipe, Record
from infuser_core.store.store import Outcome, Store
from infuser_core.terminal import Console


def made(root: Path, phase: str, *, iteration: int = 0, seed: int = 0, **summary: object) -> Record:
    """The record of a committed artifact with this summary."""
    store = Store(root)
    recipe = Recipe(phase=phase, version=1, config={}, seed=seed, iteration=iteration, inputs={})
    with store.workspace(recipe) as workspace:
        return store.manifest(store.commit(recipe, workspace, Outcome(tables={}, summary=summary), seconds=2.0))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_line_has_what_a_phase_says_of_itself(tmp_path: Path):
    record = made(tmp_path, "generate_questions", written=64, valid=60, statuses={"scored": 3}, status="ok")
    metrics = metrics_of(record, seconds=2.0, tokens=512)
    assert metrics["valid_share"] == 0.9375 and metrics["tokens_per_second"] == 256 and metrics["statuses.scored"] == 3
    assert in_words(metrics, record.summary) == "valid 94%, 0 rows, 256 tokens/s, scored 3"


def test_what_is_no_number_is_no_metric_but_a_bad_status_is_said(tmp_path: Path):
    record = made(tmp_path, "dev_gradient", norm=float("nan"), status="dev signal exhausted", whole=True)
    metrics = metrics_of(record, seconds=1.0)
    assert set(metrics) == {"rows", "seconds"}
    assert in_words(metrics, record.summary) == "0 rows, dev signal exhausted"


@pytest.mark.parametrize(
    ("phase", "iteration", "place"),
    [
        ("rollout_dev", 0, "iteration 0 of 0-3"),
        ("validate", 4, "after 4 of 4"),
        ("respond", 0, "anchor"),
        ("pool", -1, ""),
    ],
)
def test_the_log_counts_iterations_like_files(phase: str, iteration: int, place: str):
    assert place_of(phase, iteration, 4) == place


def test_the_time_left_leaves_out_what_was_in_the_store():
    clock = RemainingTime()
    for iteration in range(3):
        clock.skip(iteration)
    assert clock.seconds_left(10, 0.0) is None
    clock.skip(3)
    clock.ran(3, 100.0)
    clock.ran(4, 101.0)
    assert clock.seconds_left(10, 105.0) is None
    clock.ran(5, 111.0)
    assert clock.seconds_left(10, 116.0) == 10.0 * 5 - 5.0


def test_a_pipe_gets_a_line_per_stage(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    console = Console.here(plain=True)
    console.iterations = 4
    log = RunLog(console)
    log.add_cached(made(tmp_path, "pool", iteration=-1), -1)
    log.ran(made(tmp_path, "rollout_dev", iteration=1, accuracy=0.5), seconds=2.0, tokens=1000)
    first, second = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"\d\d:\d\d:\d\d  1 stages found in the store", first)
    assert second.endswith("  iteration 1 of 0-3  rollout_dev  2.00 s  accuracy 0.500, 0 rows, 500 tokens/s")


def test_a_terminal_gets_a_line_per_iteration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    console = Console.here()
    console.iterations = 2
    log = RunLog(console)
    with log.attempt("a"):
        for iteration in range(2):
            log.ran(made(tmp_path, "generate_questions", iteration=iteration, written=4, valid=3), seconds=1.0)
            log.ran(made(tmp_path, "pool", iteration=iteration), seconds=1.0)
    kept = screen.getvalue().replace("\r\x1b[2K", "").splitlines()
    assert kept[0] == "iteration 0 of 0-1  generate_questions valid 75%"
    assert kept[1].startswith("iteration 1 of 0-1  generate_questions valid 75%") and len(kept) == 2


def test_a_silent_console_shows_nothing_and_the_log_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    log = RunLog(Console(enabled=False), tmp_path, attempt=1)
    with log.attempt("a"):
        log.ran(made(tmp_path, "pool", iteration=-1), seconds=1.0)
    assert capsys.readouterr().err == ""
    lines = (tmp_path / "log.txt").read_text().splitlines()
    assert [re.sub(r"^\S+ \S+  ", "", line)[:16] for line in lines] == [
        "attempt 1 of a s",
        "pool  1.00 s  0 ",
        "attempt 1 ended,",
    ]


def test_the_log_has_warnings_and_why_an_attempt_ended(tmp_path: Path):
    with warnings.catch_warnings(record=True) as heard, pytest.raises(KeyError):
        with RunLog(Console(enabled=False), tmp_path, attempt=3).attempt("a"):
            warnings.simplefilter("always")
            warnings.warn("too few rows", UserWarning, stacklevel=1)
            raise KeyError("gone")
    log = (tmp_path / "log.txt").read_text()
    assert "warning: UserWarning: too few rows" in log and "attempt 3 ended by KeyError: 'gone'" in log
    assert len(heard) == 1


def test_a_warning_of_this_project_is_one_line_in_a_pipe_and_in_the_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    with RunLog(Console(enabled=False), tmp_path, attempt=1).attempt("a"):
        warnings.warn("keys are wrong", DataWarning, stacklevel=1)
    assert capsys.readouterr().err == "warning: keys are wrong\n"
    assert "  warning: keys are wrong\n" in (tmp_path / "log.txt").read_text()


def test_metrics_are_told_once_whatever_attempt_and_a_torn_line_costs_only_itself(tmp_path: Path):
    first, second = made(tmp_path, "validate", accuracy=0.5), made(tmp_path, "validate", seed=1, accuracy=0.75)
    file = tmp_path / "metrics.jsonl"
    RunLog(folder=tmp_path, attempt=1).ran(first, seconds=1.0)
    with file.open("a") as handle:
        handle.write('{"step": 0, "phase": "vali')
    again = RunLog(folder=tmp_path, attempt=2)
    again.add_cached(first, 0)
    again.add_cached(second, 0)
    again.ran(second, seconds=1.0)
    found = [(point.attempt, point.state, point.metrics["accuracy"]) for point in points_in(file)]
    assert found == [(1, "ran", 0.5), (2, "cached", 0.75)]
    assert json.loads(file.read_text().splitlines()[0])["key"] == first.key


def test_a_pipe_a_link_a_folder_and_a_full_disk_cost_one_warning(tmp_path: Path):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for path in (tmp_path / "fifo", tmp_path / "link", tmp_path, Path("/dev/full"), tmp_path / "no" / "folder"):
        told: list[str] = []
        lines = Lines(path, told.append)
        lines.add("one")
        lines.add("two")
        assert len(told) == 1 and str(path) in told[0]
    assert not (tmp_path / "elsewhere").exists()


def test_lines_steer_no_terminal_and_end(tmp_path: Path):
    lines = Lines(tmp_path / "log", print)
    lines.add("a\x1b[2J\nb" + "c" * 10_000 + "\ud800")
    text = (tmp_path / "log").read_text()
    assert text.startswith("a\\u001b[2J b") and text.count("\n") == 1 and len(text) < 5000


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("GET https://me:pa55w0rd@host/v1", "GET https://***@host/v1"),
        ("api_key=sk-123, lr=1", "api_key=***, lr=1"),
        ("{'password': 'a b', 'seed': 1}", "{'password': ***, 'seed': 1}"),
        ("Authorization: Bearer abcdefghij", "Authorization: Bearer ***"),
        ("HF_TOKEN=hf_x rest", "HF_TOKEN=*** rest"),
        ("value-of-the-environment!", "***!"),
        ("512 tokens/s, token_budget=16384, tokens: 7", "512 tokens/s, token_budget=16384, tokens: 7"),
    ],
)
def test_no_secret_is_written_down(text: str, left: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SOME_SERVICE_API_KEY", "value-of-the-environment")
    assert redacted(text) == left


def test_a_run_leaves_a_line_and_a_point_per_stage(small_run: SmallRun):
    folder = small_run.root / "runs" / small_run.name
    ran = [entry.key for entry in Journal(small_run.root, small_run.name).latest()]
    assert [point.key for point in points_in(folder / "metrics.jsonl")] == ran
    log = (folder / "log.txt").read_text()
    assert "iteration 1 of 0-1  score_influence" in log and "mean score" in log and "ETA" in log
    assert "stages ran, 0 found in the store, " in log.splitlines()[-1]


def test_a_run_goes_on_without_its_log_and_says_so_once(launch: Launcher, small_run: SmallRun, tmp_path: Path):
    copy_store(small_run.root, tmp_path, without=("validate", "select"))
    folder = tmp_path / "runs" / small_run.name
    for name in ("log.txt", "metrics.jsonl"):
        (folder / name).mkdir(parents=True)
    ended = launch(*small_run.arguments, store=tmp_path)
    assert ended.code == 0
    assert [ended.told.count(f"cannot write {folder / name}") for name in ("log.txt", "metrics.jsonl")] == [1, 1]
    assert "after 2 of 2  validate validation" in ended.told and "accuracy" in ended.told
