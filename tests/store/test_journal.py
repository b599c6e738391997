"""The journal survives a kill in the middle of a line, and no byte of it changes unnoticed."""

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
from care_tools import made_up
from hypothesis import given, settings
from hypothesis import strategies as st

from infuser_core.errors import DamagedArtifactError, StoreError
from infuser_core.store import runs
from infuser_core.store.doctor import end_repair, examine, prepare_repair
from infuser_core.store.gc import plan_gc
from infuser_core.store.journal import Entry, Journal
from infuser_core.store.runs import create_run, list_runs

STAGES = st.lists(
    st.tuples(
        st.sampled_from(["chunk", "judge", "rollout_dev"]),
        st.integers(-1, 3),
        st.sampled_from(["ran", "cached", "failed"]),
        st.text('a}{"\n', max_size=60),
    ),
    min_size=1,
    max_size=5,
)


def write(root: Path, stages: list[tuple[str, int, str, str]]) -> Journal:
    create_run(root, "run", {})
    journal = Journal(root, "run")
    journal.start_attempt()
    for stage in stages:
        add(journal, stage)
    return journal


def add(journal: Journal, stage: tuple[str, int, str, str]) -> None:
    phase, iteration, state, message = stage
    journal.append(phase=phase, iteration=iteration, state=state, seconds=0.5, key=f"{phase}-0", message=message)


def test_entries_come_back_as_written(tmp_path: Path):
    journal = write(tmp_path, [("chunk", -1, "ran", ""), ("rollout_dev", 2, "failed", 'broken "}\n{"')])
    found = journal.entries()
    assert all(abs(entry.at - time.time()) < 60 for entry in found)
    assert [replace(entry, at=0.0) for entry in found] == [
        Entry(
            attempt=1,
            phase=phase,
            iteration=iteration,
            key=f"{phase}-0",
            digest="",
            state=state,
            seconds=0.5,
            rows=0,
            message=message,
        )
        for phase, iteration, state, message in [
            ("chunk", -1, "ran", ""),
            ("rollout_dev", 2, "failed", 'broken "}\n{"'),
        ]
    ]


@settings(max_examples=150)
@given(stages=STAGES, keep=st.floats(0, 1, exclude_max=True))
def test_a_torn_last_line_costs_that_line_alone(
    tmp_path_factory: pytest.TempPathFactory, stages: list[tuple[str, int, str, str]], keep: float
):
    journal = write(tmp_path_factory.mktemp("root"), stages[:-1])
    head, before = journal.path.with_suffix(".head"), journal.path.read_bytes() if stages[1:] else b""
    told = head.read_bytes()
    add(journal, stages[-1])
    whole = journal.entries()
    line = journal.path.read_bytes()[len(before) :]
    # Neither the newline was written nor, therefore, the head.
    journal.path.write_bytes(before + line[: int(keep * (len(line) - 1))])
    head.write_bytes(told)
    assert journal.entries() == whole[:-1]

    again = Journal(journal.path.parent.parent.parent, "run")
    again.start_attempt()
    again.append(phase="chunk", iteration=-1, state="ran", seconds=0.0)
    assert [(entry.phase, entry.message) for entry in again.entries()] == [
        *[(entry.phase, entry.message) for entry in whole[:-1]],
        ("chunk", ""),
    ]


def test_attempts_are_counted(tmp_path: Path):
    write(tmp_path, [("chunk", -1, "ran", "")])
    journal = Journal(tmp_path, "run")
    assert journal.start_attempt() == 2
    journal.append(phase="judge", iteration=-1, state="failed", seconds=0.0)
    assert [entry.phase for entry in journal.last_attempt()] == ["judge"]
    assert not journal.is_finished()
    journal.finish()
    assert journal.is_finished()
    assert [entry.phase for entry in journal.last_attempt()] == ["judge"]


def test_a_complete_attempt_replaces_what_older_ones_knew(tmp_path: Path):
    journal = Journal(tmp_path, "run")
    create_run(tmp_path, "run", {})

    def attempt(*keys: str, finish: bool) -> None:
        journal.start_attempt()
        for key in keys:
            journal.append(phase="chunk", iteration=-1, state="ran", seconds=0.0, key=key)
        if finish:
            journal.finish()

    attempt("old", "both", finish=True)
    attempt("both", finish=False)
    assert [entry.key for entry in journal.latest()] == ["old", "both"]
    attempt("both", "new", finish=True)
    assert sorted(entry.key for entry in journal.latest()) == ["both", "new"]


def test_failed_stages_are_no_part_of_a_run(tmp_path: Path):
    journal = write(tmp_path, [("chunk", -1, "ran", ""), ("judge", -1, "failed", "no")])
    assert [entry.phase for entry in journal.latest()] == ["chunk"]


def test_the_latest_run_is_the_one_that_worked_last(tmp_path: Path):
    for name, moment in (("first", 300), ("second", 200), ("third", 100)):
        create_run(tmp_path, name, {})
        journal = Journal(tmp_path, name)
        journal.start_attempt()
        journal.append(phase="chunk", iteration=-1, state="ran", seconds=0.0)
        os.utime(journal.path, (moment, moment))
    assert list_runs(tmp_path) == ["third", "second", "first"]


RECORDS = ("run.json", "journal.jsonl", "journal.head", "attempt.json")


def finished(root: Path) -> Path:
    """A made-up run's folder, with every kind of record; of what it made, gc would remove some checkpoints alone."""
    made_up(root, "run", 6, selected=6)
    runs.change_run(root, "run", pins=[3])
    return root / "runs" / "run"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return finished(tmp_path_factory.mktemp("store"))


@settings(max_examples=120, deadline=None)
@given(file=st.sampled_from(RECORDS), place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_flipped_bit_is_found_and_gc_removes_nothing(run: Path, file: str, place: float, bit: int):
    path, root = run / file, run.parent.parent
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[int(place * len(whole))] ^= 1 << bit
    path.write_bytes(flipped)
    try:
        damage = examine(root).damage
        # A seal whose name is changed is no seal: such a record counts as one of an older version, and tells the same.
        if damage or b'"seal"' in flipped:
            assert [problem.kind for problem in damage] in (["journal_damaged"], ["record_lost"])
            with pytest.raises(StoreError, match="gc cannot know what runs/run holds"):
                plan_gc(root)
    finally:
        path.write_bytes(whole)
    assert examine(root).state == "healthy"


@pytest.mark.parametrize("file", RECORDS)
@pytest.mark.parametrize("change", ["removed", "emptied", "cut"])
def test_a_lost_or_cut_record_is_found(tmp_path: Path, file: str, change: str):
    path = finished(tmp_path) / file
    content = path.read_bytes()
    path.unlink() if change == "removed" else path.write_bytes(
        content[: len(content) * 2 // 3] if change == "cut" else b""
    )
    assert examine(tmp_path).state == ("lost" if file == "run.json" else "repairable")
    with pytest.raises(StoreError, match="gc cannot know what runs/run holds"):
        plan_gc(tmp_path)


@pytest.mark.parametrize("file", RECORDS)
def test_a_record_of_another_run_is_damage_although_it_is_whole(tmp_path: Path, file: str):
    path, other = finished(tmp_path / "a") / file, tmp_path / "b"
    made_up(other, "other", 4, selected=4)
    path.write_bytes((other / "runs" / "other" / file).read_bytes())
    assert examine(tmp_path / "a").state == ("lost" if file == "run.json" else "repairable")
    with pytest.raises(StoreError, match="gc cannot know what runs/run holds"):
        plan_gc(tmp_path / "a")


def test_a_lost_end_is_told_from_a_torn_line_and_from_a_changed_middle(run: Path):
    path, head = run / "journal.jsonl", run / "journal.head"
    whole, lines = path.read_bytes(), path.read_bytes().splitlines(keepends=True)
    journal = Journal(run.parent.parent, "run")

    def after(content: bytes) -> tuple[str, int]:
        path.write_bytes(content)
        seen = journal.read_state()
        return seen.damage, seen.torn

    try:
        assert after(whole + b'{"attempt": 1, "pha') == ("", len(lines) + 1)
        lost, _ = after(b"".join(lines[:-1]))
        assert lost == f"its end is lost, {len(lines[-1])} bytes"
        changed, _ = after(b"".join([lines[0], *lines[2:]]))
        assert changed == "line 2 is not as it was written"
        twice, _ = after(b"".join([lines[0], lines[0], *lines[1:]]))
        assert twice == "line 2 is not as it was written"
        with pytest.raises(DamagedArtifactError, match="line 2"):
            journal.latest()
        path.write_bytes(whole)
        told = head.read_bytes()
        head.unlink()
        assert journal.read_state().damage == "its head is lost"
        head.write_bytes(told)
    finally:
        path.write_bytes(whole)
    assert journal.read_state().damage == ""


def test_a_repair_keeps_the_sound_lines_and_what_the_others_told_until_the_run_has_gone_over_them(tmp_path: Path):
    path = finished(tmp_path) / "journal.jsonl"
    journal, before = Journal(tmp_path, "run"), Journal(tmp_path, "run").entries()
    lines = path.read_bytes().splitlines(keepends=True)
    lines[5] = lines[5].replace(b'"ran"', b'"rbn"')
    path.write_bytes(b"".join(lines))
    prepared = prepare_repair(tmp_path, None)
    assert (prepared.runs, len(prepared.aside)) == (["run"], 1) and prepared.aside[0].startswith(
        "set aside journal.jsonl: "
    )
    assert journal.entries() == before[:5]
    # Killed here, the run is still to be repaired, and gc waits.
    assert examine(tmp_path).state == "repairable" and prepare_repair(tmp_path, None).runs == ["run"]
    with pytest.raises(StoreError, match="gc cannot know"):
        plan_gc(tmp_path)
    journal.start_attempt()
    for entry in before[5:-1]:
        journal.append(
            phase=entry.phase, iteration=entry.iteration, state="cached", seconds=0, key=entry.key, digest=entry.digest
        )
    journal.finish()
    end_repair(tmp_path, ["run"])
    assert examine(tmp_path).state == "healthy" and sorted(tmp_path.glob("damaged/journal.*"))


def test_a_journal_of_an_older_version_is_read_and_sealed_from_its_next_line_on(tmp_path: Path):
    runs.create_run(tmp_path, "run", {})
    journal = Journal(tmp_path, "run")
    old = '{"attempt": 1, "phase": "chunk", "iteration": -1, "key": "k", "digest": "d", "state": "ran", '
    old += '"seconds": 0.5, "rows": 1, "message": ""}\n{"attempt": 1, "pha\n'
    journal.path.write_text(old)
    assert (journal.read_state().damage, [entry.key for entry in journal.entries()]) == ("", ["k"])
    assert journal.start_attempt() == 2
    journal.append(phase="judge", iteration=-1, state="ran", seconds=0, key="j")
    assert (journal.read_state().damage, [entry.key for entry in journal.entries()]) == ("", ["k", "j"])
    journal.path.write_bytes(journal.path.read_bytes().replace(b'"digest": "d"', b'"digest": "e"'))
    assert journal.read_state().damage == "line 3 is not as it was written"
