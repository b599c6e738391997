"""Flipped bits, lost parts, full and read-only disks and jumping clocks are named, and cost no finished work."""

import os
import shutil
import time
from pathlib import Path

import pytest
from fault_tools import Faults, artifact, own_copy, remount, small_disk, used

from infuser_core.errors import StoreError
from infuser_core.store.journal import Journal
from infuser_core.store.recipe import MANIFEST
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


@pytest.mark.long
@pytest.mark.parametrize("harm", ["truncated", "empty", "deleted"])
def test_a_damaged_part_is_named(faults: Faults, harm: str):
    store = faults.without(*EVALUATION)
    for folder in (store / "artifacts" / "update_solver").iterdir():
        path = own_copy(folder, "model.safetensors")
        if harm == "deleted":
            path.unlink()
        else:
            path.write_bytes(path.read_bytes()[: 1000 if harm == "truncated" else 0])
    message, hint = faults.start().fails_with(3)
    assert "model.safetensors" in message and "update_solver" in message
    assert "infuser doctor --repair" in hint
    assert faults.launch("doctor", "--repair", store=store).code == 0
    faults.resumes()


@pytest.mark.long
def test_an_artifact_without_its_record_is_put_aside_and_computed_again(faults: Faults):
    store = faults.without("select")
    folder = artifact(store, "judge")
    (folder / MANIFEST).unlink()
    done = faults.start().ended
    assert done.code == 0, done.err
    assert [path.name.rpartition(".")[0] for path in (store / "damaged").iterdir()] == [folder.name]
    faults.has_the_same_bits()


@pytest.mark.long
def test_a_torn_record_is_named(faults: Faults):
    store = faults.without("select")
    record = own_copy(artifact(store, "judge"), MANIFEST)
    record.write_text(record.read_text()[:200])
    message, _ = faults.start().fails_with(3)
    assert f"the commit record {record} is damaged" in message
    assert faults.launch("doctor", "--repair", store=store).code == 0
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
@pytest.mark.parametrize("spare", [64 * 1024, 3 * 1024 * 1024])
def test_a_full_disk_is_said_and_costs_nothing(faults: Faults, tmp_path: Path, spare: int):
    with small_disk(tmp_path / "disk", "200m") as store:
        faults.store = store
        left = ("update_generator", "update_solver", *EVALUATION)
        for kind in (faults.run.root / "artifacts").iterdir():
            if kind.name not in left:  # copies: another file system has no hard links to this one
                shutil.copytree(kind, store / "artifacts" / kind.name)
        remount(store, f"size={used(store) + spare}")
        message, hint = faults.start().fails_with(3)
        assert str(store) in message and "no space left" in message.lower()
        assert "free some space" in hint and "infuser resume" in hint
        half = [folder for folder in (store / "artifacts").glob("*/*") if not (folder / MANIFEST).is_file()]
        assert half == [] and list((store / ".staging").iterdir()) == []
        remount(store, "size=200m")
        faults.resumes()


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


@pytest.mark.long
def test_a_read_only_store_is_refused_for_writing_and_readable(faults: Faults, tmp_path: Path):
    with small_disk(tmp_path / "disk", "200m") as store:
        shutil.copytree(faults.run.root, store, dirs_exist_ok=True, ignore=shutil.ignore_patterns("prefect"))
        remount(store, "ro")
        for arguments in (["resume", "small"], faults.run.arguments):
            refused = faults.launch(*arguments, store=store)
            assert refused.code == 3, refused
            message, hint = refused.err.splitlines()
            assert message == f"infuser: cannot write the store at {store}: Read-only file system"
            assert "INFUSER_STORE" in hint
        for command in ("runs", "status", "digest", "result"):
            looked = faults.launch(command, *([] if command == "runs" else ["small"]), store=store)
            assert (looked.code == 0 and "small" in looked.out) or command == "digest", looked
        assert "small  done" in faults.launch("runs", store=store).out
        remount(store, "rw")
        assert faults.launch("resume", "small", store=store).code == 0


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
