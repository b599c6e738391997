"""Killed at any moment, an evaluation asks no finished question again and ends in the same bytes."""

import json
import signal
from pathlib import Path

import pytest
from launcher import Launcher

from infuser_core.evaluation.folder import ExamFolder
from infuser_core.phases.respond import Key
from infuser_core.schemas import BenchmarkResponse
from infuser_core.store.tables import read_rows

ARGUMENTS = ["eval", "--model", "nano", "--benchmarks", "nano_target,nano_transfer", "--limit", "12"]
# Small batches: a dozen parts or so.
ARGUMENTS += ["--samples", "2", "--batch-tokens", "250"]
KILLS = ["eval:before_part:2", "eval:after_part:3", "eval:after_part:1"]
MADE_ONCE = ("attempts.jsonl", ".lock")


def files(folder: Path) -> dict[str, bytes]:
    found = (path for path in folder.rglob("*") if path.is_file() and path.name not in MADE_ONCE)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def keys_in(path: Path) -> set[Key]:
    return {(row.benchmark, row.question_id) for row in read_rows(path, BenchmarkResponse)}


@pytest.mark.slow
def test_a_killed_evaluation_repeats_no_finished_question_and_gives_the_same_table(launch: Launcher, tmp_path: Path):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    undisturbed = launch(*ARGUMENTS, "--out", str(whole), store=tmp_path / "store")
    assert undisturbed.code == 0, undisturbed.err
    assert len(ExamFolder(whole).parts()) >= 6

    for kill in KILLS:
        before = {path: path.stat().st_mtime_ns for path in ExamFolder(broken).parts()}
        killed = launch(*ARGUMENTS, "--out", str(broken), store=tmp_path / "store", INFUSER_CRASH_AT=kill)
        assert killed.code == -signal.SIGKILL, killed
        assert before.items() <= {path: path.stat().st_mtime_ns for path in ExamFolder(broken).parts()}.items()
    assert not (broken / "results.json").exists()

    saved = len(ExamFolder(broken).finished())
    resumed = launch(*ARGUMENTS, "--out", str(broken), store=tmp_path / "store")
    assert resumed.code == 0, resumed.err
    attempts = [json.loads(line) for line in (broken / "attempts.jsonl").read_text().splitlines()]
    assert len(attempts) == len(KILLS) + 1 and 0 < saved < 24
    assert attempts[-1] == {"finished": saved, "asked": 24 - saved}
    assert all(attempt["finished"] + attempt["asked"] == 24 for attempt in attempts)

    parts = [keys_in(path) for path in ExamFolder(broken).parts()]
    assert sum(map(len, parts)) == len(set().union(*parts)) == 24, "a question stands in one part alone"
    assert files(broken) == files(whole)
    assert resumed.out.replace(str(broken), "") == undisturbed.out.replace(str(whole), "")


@pytest.mark.slow
def test_a_finished_evaluation_asks_nothing_and_needs_no_model(launch: Launcher, tmp_path: Path):
    out, store = tmp_path / "out", tmp_path / "store"
    first = launch(*ARGUMENTS, "--out", str(out), store=store)
    made = files(out)
    again = launch(*ARGUMENTS, "--out", str(out), store=store)
    assert first.code == again.code == 0, again.err
    assert first.out == again.out and files(out) == made
    assert json.loads((out / "attempts.jsonl").read_text().splitlines()[-1]) == {"finished": 24, "asked": 0}
