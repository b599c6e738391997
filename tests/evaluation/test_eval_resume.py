"""Killed at any moment, an evaluation asks no finished question again and ends in the same bytes."""

import json
import signal
from pathlib import Path

import pytest
from launcher import Launcher

from infuser_core.evaluation.evaluate import Key
from infuser_core.schemas import BenchmarkResponse
from infuser_core.store.tables import read_rows

ARGUMENTS = ["eval", "--model", "nano", "--benchmarks", "nano_target,nano_transfer", "--limit", "12"]
# Small batches: a dozen pieces or so.
ARGUMENTS += ["--samples", "2", "--batch-tokens", "250"]
KILLS = ["respond:before_piece:2", "respond:after_piece:3", "respond:after_piece:1"]


def files(folder: Path) -> dict[str, bytes]:
    found = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert {"results.json", "responses.parquet", "verdicts/paper.parquet"} <= set(found)
    return found


def kept(store: Path) -> list[set[Key]]:
    """Questions of every piece that waits for its stage to end, and of every stage that has ended."""
    files = [*store.glob(".partial/respond-*/piece-*.parquet"), *store.glob("artifacts/respond/*/responses.parquet")]
    return [{(row.benchmark, row.question_id) for row in read_rows(path, BenchmarkResponse)} for path in files]


@pytest.mark.slow
def test_a_killed_evaluation_repeats_no_finished_question_and_gives_the_same_tables(launch: Launcher, tmp_path: Path):
    whole, broken, store = tmp_path / "whole", tmp_path / "broken", tmp_path / "store"
    undisturbed = launch(*ARGUMENTS, "--out", str(whole), store=tmp_path / "other")
    assert undisturbed.code == 0, undisturbed.err

    saved = 0
    for kill in KILLS:
        killed = launch(*ARGUMENTS, "--out", str(broken), store=store, INFUSER_CRASH_AT=kill)
        assert killed.code == -signal.SIGKILL, killed
        pieces = kept(store)
        assert sum(map(len, pieces)) == len(set().union(*pieces)) >= saved, "a question stands in one piece alone"
        saved = sum(map(len, pieces))
    assert 0 < saved < 24 and not broken.exists()

    resumed = launch(*ARGUMENTS, "--out", str(broken), store=store)
    assert resumed.code == 0, resumed.err
    assert files(broken) == files(whole) and [len(keys) for keys in kept(store)] == [12, 12]
    assert resumed.out.replace(str(broken), "") == undisturbed.out.replace(str(whole), "")


@pytest.mark.slow
def test_a_finished_evaluation_asks_nothing_and_needs_no_model(launch: Launcher, tmp_path: Path):
    out, store = tmp_path / "out", tmp_path / "store"
    first = launch(*ARGUMENTS, "--out", str(out), store=store)
    made = files(out)
    again = launch(*ARGUMENTS, "--out", str(out), store=store)
    assert first.code == again.code == 0, again.err
    assert first.out == again.out and files(out) == made
    (journal,) = store.glob("evaluations/*/journal.jsonl")
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    states = [[line["state"] for line in lines if line["attempt"] == attempt] for attempt in (1, 2)]
    assert states == [["ran"] * 4 + ["done"], ["cached"] * 4 + ["done"]]


@pytest.mark.slow
def test_one_more_benchmark_asks_only_its_own_questions(launch: Launcher, tmp_path: Path):
    for names in ("nano_target", "nano_transfer,nano_target"):
        ended = launch("eval", "--model", "nano", "--benchmarks", names, "--limit", "4", store=tmp_path)
        assert ended.code == 0, ended.err
    assert len(list(tmp_path.glob("evaluations/*"))) == len(list(tmp_path.glob("artifacts/respond/*"))) == 2
