"""A clock that jumps changes no key, loses no result, and does not make an older run the latest one."""

import os
import time
from pathlib import Path

import pytest
from fault_tools import store_without
from launcher import Launcher, SmallRun

from infuser_core.store.runs import Journal, create_run, find_run, list_runs, mark_latest

pytestmark = pytest.mark.long

FUTURE = 4_000_000_000.0


@pytest.mark.slow
@pytest.mark.parametrize("moment", [0.0, FUTURE])
def test_file_times_are_no_part_of_a_key(launch: Launcher, small_run: SmallRun, tmp_path, moment: float):
    store = store_without(small_run, tmp_path / "store", *[])
    for path in (store / "artifacts").rglob("*"):
        if path.is_dir():
            os.utime(path, (moment, moment))
    again = launch(*small_run.arguments, store=store)
    assert again.code == 0, again.err
    assert {entry.state for entry in Journal(store, "small").last_attempt()} == {"cached"}
    assert launch("digest", store=store).out == launch("digest", "small", store=small_run.root).out


def worked(root: Path, name: str) -> Journal:
    create_run(root, name, {})
    journal = Journal(root, name)
    journal.start_attempt()
    journal.append(phase="judge", iteration=-1, state="ran", seconds=0.0)
    return journal


def test_the_run_that_works_is_the_latest_also_after_the_clock_was_put_back(tmp_path: Path):
    first = worked(tmp_path, "first")
    os.utime(first.path, (FUTURE, FUTURE))  # written while the clock was years ahead
    second = worked(tmp_path, "second")
    assert find_run(tmp_path, None) == "second"
    first.append(phase="chunk", iteration=-1, state="ran", seconds=0.0)
    assert list_runs(tmp_path) == ["second", "first"]
    second.append(phase="chunk", iteration=-1, state="ran", seconds=0.0)
    assert list_runs(tmp_path) == ["first", "second"]
    mark_latest(tmp_path, "first")
    assert find_run(tmp_path, None) == "first"


def test_attempts_are_counted_not_dated(tmp_path: Path):
    journal = worked(tmp_path, "run")
    os.utime(journal.path, (FUTURE, FUTURE))
    assert Journal(tmp_path, "run").start_attempt() == 2
    assert Journal(tmp_path, "run").path.stat().st_mtime == FUTURE
    assert time.time() < FUTURE
