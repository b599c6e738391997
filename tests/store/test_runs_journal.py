"""The journal survives a kill in the middle of a line, and says what a run consists of."""

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
