"""Flipped bits and torn journal lines are named, and file times that jump change nothing."""

import os
import re
import time
from pathlib import Path

import pytest
from fault_tools import Faults, artifact, own_copy, remount, small_disk

from infuser_core.errors import StoreError
from infuser_core.store.journal import Journal
from infuser_core.store.runs import create_run, find_run, list_runs, mark_latest
from infuser_core.store.store import Store

EVALUATION = ("respond", "validate", "select", "leakage", "evaluate")
FUTURE = 4_000_000_000.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("phase", "name", "missing"),
    [
        pytest.param("update_solver", "model.safetensors", EVALUATION, marks=pytest.mark.long),
        ("questions", "reference_questions.parquet", ("audit", "pool")),
    ],
)
def test_a_flipped_bit_is_named_and_repaired_by_computing_again(
    faults: Faults, phase: str, name: str, missing: tuple[str, ...]
):
    store = faults.without(*missing)
    harmed = [own_copy(path.parent, name) for path in (store / "artifacts" / phase).glob(f"*/{name}")]
    assert harmed and all(path.stat().st_nlink == 1 for path in harmed), "the other tests' files stay as they are"
    for path in harmed:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    message, hint = faults.start().fails_with(3)
    assert any(str(path) in message for path in harmed) and "does not match the digest" in message
    assert "infuser doctor --repair" in hint
    repaired = faults.launch("doctor", "--repair", store=store)
    assert repaired.code == 0, repaired.err
    assert all(f"set aside {path.parent.name}" in repaired.out for path in harmed)
    faults.resumes()


def test_pieces_of_a_complete_artifact_are_swept_and_others_kept(faults: Faults):
    store = Store(faults.without())
    done = store.root / ".partial" / artifact(store.root, "judge").name
    open_still = store.root / ".partial" / "judge-0123456789abcdef"
    for folder in (done, open_still):
        folder.mkdir(parents=True)
        (folder / "piece").write_text("kept")
    store.sweep()
    assert not done.exists() and (open_still / "piece").read_text() == "kept"


@pytest.mark.long
def test_a_line_that_the_disk_tore_does_not_swallow_the_next(tmp_path: Path):
    with small_disk(tmp_path / "disk", "64k") as root:
        create_run(root, "run", {})
        journal = Journal(root, "run")
        journal.start_attempt()
        journal.append(phase="chunk", iteration=-1, state="ran", seconds=0.0, message="first")
        with pytest.raises(StoreError, match="cannot write") as caught:
            for _ in range(100):
                journal.append(phase="judge", iteration=-1, state="failed", seconds=0.0, message="x" * 2000)
        assert "free some space" in caught.value.hint
        remount(root, "size=1m")
        journal.append(phase="judge", iteration=-1, state="ran", seconds=0.0, message="last")
        entries = journal.entries()
        assert (entries[0].message, entries[-1].message) == ("first", "last")
        assert {entry.message for entry in entries[1:-1]} == {"x" * 2000}


@pytest.mark.slow
def test_a_disk_too_small_for_a_checkpoint_is_foreseen_with_numbers_and_remedy(faults: Faults, tmp_path: Path):
    with small_disk(tmp_path / "disk", "16m") as store:
        refused = faults.launch(*faults.run.arguments, "--until", "update_generator@0", store=store)
        assert refused.code == 3, refused
        assert re.search(
            r"update_generator, iteration 0 writes 8\.\d MB, and the disk of the store at \S+ has \d\.\d MB free: "
            r"\d\.\d MB are missing",
            refused.err,
        ), refused.err
        assert "`infuser gc` lists what can be removed, and with store.keep a run removes it itself" in refused.err
        remount(store, "size=60m")
        resumed = faults.launch("resume", faults.run.name, "--until", "update_generator@0", store=store)
        assert resumed.code == 0 and "update_generator" in resumed.told, resumed


@pytest.mark.long
@pytest.mark.parametrize("moment", [0.0, FUTURE])
def test_file_times_are_no_part_of_a_key(faults: Faults, moment: float):
    for path in (faults.without() / "artifacts").rglob("*"):
        if path.is_dir():
            os.utime(path, (moment, moment))
    again = faults.start().ended
    assert again.code == 0, again.err
    assert {entry.state for entry in faults.journal.last_attempt()} == {"cached"}
    faults.has_the_same_bits()


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
