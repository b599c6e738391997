"""Faults of processes, disks and people: each survived with the same answers and bits, or refused by name."""

import math
import os
import re
import shutil
import signal
import time
from pathlib import Path

import pytest
from campaign import torment
from crash_points import content, mismatches
from fault_tools import Faults, artifact, eventually, is_stopped, own_copy, remount, small_disk
from launcher import Launcher, SmallRun
from motion import missing
from readers import Readers
from script import Fault, parse, scripts, shrink
from world import KEEP, copy, world

from infuser_core.errors import ConfigError, StoreError
from infuser_core.settings import DEFAULT, phase_seconds
from infuser_core.store import pruned
from infuser_core.store.journal import Journal
from infuser_core.store.runs import create_run, find_run, is_held, list_runs, mark_latest
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


AT_WORK = "stop@judge:inside"


@pytest.mark.slow
def test_a_stage_that_raises_is_named_and_the_run_goes_on(faults: Faults):
    faults.without("judge")
    message, hint = faults.start(INFUSER_CRASH_AT="raise@judge:inside").fails_with(3)
    assert message == "infuser: stage judge of run small failed: RuntimeError: told to fail at judge:inside"
    assert "infuser resume small" in hint
    entries = faults.journal.last_attempt()
    # Tried twice: what failed once may have been bad luck.
    assert [(e.phase, e.state) for e in entries if e.state != "cached"] == [("judge", "failed")] * 2
    assert "told to fail" in entries[-1].message
    assert "failed in judge" in faults.launch("runs", store=faults.store).out
    faults.resumes()
    assert {e.phase for e in faults.journal.last_attempt() if e.state == "ran"} == {"judge"}


@pytest.mark.slow
def test_sigterm_ends_a_stage_at_its_next_safe_point(faults: Faults):
    faults.without("judge")
    running = faults.begin(INFUSER_CRASH_AT=AT_WORK)
    eventually(lambda: is_stopped(running.pid), "the judge to be at work")
    running.kill(signal.SIGTERM)
    running.kill(signal.SIGCONT)
    ended = running.wait()
    assert (ended.code, ended.err.splitlines()) == (
        143,
        ["infuser: stopped by SIGTERM", "  hint: `infuser resume small` continues from the last completed stage"],
    )
    assert not is_held(faults.store, "small")
    assert list((faults.store / ".staging").iterdir()) == []
    assert faults.resumes().err == "", "who left cleanly leaves no message"


@pytest.mark.slow
def test_ctrl_c_waits_for_the_end_of_a_stage_without_a_safe_point(faults: Faults):
    faults.without("pool", "anchor")
    running = faults.begin(INFUSER_CRASH_AT="stop@pool:start")
    eventually(lambda: is_stopped(running.pid), "the pool to be filled")
    running.kill(signal.SIGINT)
    running.kill(signal.SIGCONT)
    ended = running.wait()
    assert ended.code == 130, ended
    assert ended.err.splitlines()[0] == "infuser: interrupted" and "infuser resume" in ended.err.splitlines()[1]
    last = faults.journal.last_attempt()[-1]
    assert (last.phase, last.state) == ("pool", "ran")


@pytest.mark.slow
def test_a_second_ctrl_c_does_not_wait(faults: Faults):
    faults.without("judge")
    running = faults.begin(INFUSER_CRASH_AT="hang@judge:inside")
    eventually(lambda: any((faults.store / ".staging").glob("judge-*")), "the judge to be at work")
    time.sleep(1.0)
    running.kill(signal.SIGINT)
    time.sleep(1.0)
    assert is_held(faults.store, "small"), "the first waits"
    running.kill(signal.SIGINT)
    ended = running.wait()
    assert ended.code == 130, ended
    assert ended.err.splitlines()[0] == "infuser: interrupted"
    assert list((faults.store / ".staging").iterdir()) == [] and not is_held(faults.store, "small")


@pytest.mark.long
@pytest.mark.parametrize("how", ["hang", "stuck"])
def test_a_hanging_stage_is_ended_and_named_also_where_it_hears_no_signal(faults: Faults, how: str):
    faults.without("judge")
    limits = {"INFUSER_PHASE_SECONDS": "600, judge=2"}
    message, hint = faults.start(INFUSER_CRASH_AT=f"{how}@judge:inside", **limits).fails_with(3)
    assert message == "infuser: stage judge of run small took more than 2 s"
    assert "INFUSER_PHASE_SECONDS" in hint and "infuser resume small" in hint
    failed = [e for e in faults.journal.last_attempt() if e.state == "failed"]
    assert [e.phase for e in failed] == ["judge"], "what hangs is not tried a second time"
    assert not is_held(faults.store, "small")
    assert faults.resumes().err == ""


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


@pytest.mark.long
def test_the_next_start_says_what_was_killed_for_want_of_memory_and_where(faults: Faults):
    faults.without("judge")
    running = faults.begin(INFUSER_CRASH_AT=AT_WORK)
    eventually(lambda: is_stopped(running.pid), "the judge to be at work")
    running.kill(signal.SIGKILL)  # what the kernel does for want of memory
    assert running.wait().code == -signal.SIGKILL
    (line,) = faults.resumes().err.splitlines()
    assert line.startswith(f"infuser: run small: process {running.pid} on ")
    assert "was killed (signal 9) during judge; continuing from its last completed stage" in line
    (killed,) = [entry for entry in faults.journal.entries() if entry.state == "killed"]
    assert (killed.attempt, killed.phase, killed.iteration) == (1, "judge", -1)
    assert faults.resumes().err == "", "said once"


@pytest.mark.long
@pytest.mark.parametrize("point", ["judge:before_commit", "update_solver:before_commit", "judge:before_rename"])
def test_a_staging_folder_that_somebody_empties_costs_one_stage(faults: Faults, point: str):
    faults.without("judge", "update_solver")
    running = faults.begin(INFUSER_CRASH_AT=f"stop@{point}")
    eventually(lambda: is_stopped(running.pid), "the stage to be at work")
    shutil.rmtree(faults.store / ".staging")
    running.kill(signal.SIGCONT)
    ended = running.wait()
    assert ended.code == 0, ended.err
    failed = [entry for entry in faults.journal.entries() if entry.state == "failed"]
    assert [entry.phase for entry in failed] == [point.partition(":")[0]]
    assert "No such file" in failed[0].message
    faults.has_the_same_bits()


# A fault in motion and one of a table in short; every other kind in long.
FEW = ("kill:main:0.7:0.2", "flip:table:0.4:0.5")
MORE = (
    "delete:checkpoint:0.5:0",
    "start:same:0.8:0",
    "stop:main:0.8:0.1",
    "disk:full:0.9:0.1",
    "empty:report:0.3:0",
    "truncate:locks:0.5:0.5",
    "disk:readonly:0.9:0",
)


@pytest.mark.slow
@pytest.mark.parametrize("words", [FEW, pytest.param(MORE, marks=pytest.mark.long)], ids=["few", "more"])
def test_likely_faults_are_survived(
    launch: Launcher, small_run: SmallRun, tmp_path: Path, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
):
    likely = [parse(each) for each in words if each.partition(":")[0] not in missing()]
    readers = Readers(world=world(launch, small_run, tmp_path))
    tally = torment(readers, iter(likely), seconds=math.inf, stopped=1.0)
    assert not tally.findings, capsys.readouterr().out
    assert tally.faults.total() == len(likely)


def test_a_thinned_artifact_has_the_content_of_a_whole_one_and_a_damaged_one_has_not(
    launch: Launcher, small_run: SmallRun, tmp_path: Path
):
    root = tmp_path / "store"
    copy(small_run.root, root)
    whole = content(root, small_run.name)
    assert launch("gc", "--apply", *KEEP, store=root).code == 0
    thinned = next(root.glob(f"artifacts/*/*/{pruned.FILE}")).parent
    assert content(root, small_run.name) == whole
    removed = next(iter(pruned.read_removed(thinned)))
    (thinned / removed).write_bytes(b"other")
    assert mismatches(whole, content(root, small_run.name)) == [thinned.name]
    (thinned / removed).unlink()
    (thinned / pruned.FILE).unlink()
    assert mismatches(whole, content(root, small_run.name)) == [thinned.name]


def test_a_seed_gives_the_same_script_and_its_words_repeat_it():
    kinds = {"flip": ["table", "locks"], "delete": ["table"]}
    drawn = list(scripts(7, 20, kinds, {"kill": ["main"]}))
    assert drawn == list(scripts(7, 20, kinds, {"kill": ["main"]}))
    assert sum(map(len, drawn)) == 20
    assert all(parse(" ".join(map(str, script))) == script for script in drawn)
    assert {len(script) for script in drawn if script[0].kind == "kill"} == {1}


def test_a_failing_script_shrinks_to_the_faults_that_it_needs():
    script = tuple(Fault(kind="flip", target=name) for name in "abcd")
    assert [fault.target for fault in shrink(script, lambda part: {"b", "d"} <= {f.target for f in part})] == ["b", "d"]
