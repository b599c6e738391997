"""`infuser doctor --file-system`: whether a folder's file system keeps the promises that a store needs."""

import json
import os
from pathlib import Path

import pytest
from launcher import Launcher

from infuser_core.errors import StoreError
from infuser_core.store import filesystem


def test_a_local_folder_can_hold_a_store_and_nothing_is_left_there(tmp_path: Path):
    found = filesystem.probe_folder(tmp_path)
    assert [row["name"] for row in found if not row["kept"]] == []
    assert len(found) == 5 and list(tmp_path.iterdir()) == []
    assert "can hold a store" in filesystem.format_findings(tmp_path, found)


def test_a_broken_promise_that_is_needed_is_named():
    said = filesystem.format_findings(Path("/x"), [{"name": "lock", "kept": False, "what": "a lock was given twice"}])
    assert "BROKEN" in said and "cannot hold a store: lock" in said


def test_the_command_answers_in_json_and_creates_the_folder(launch: Launcher, tmp_path: Path):
    ended = launch("doctor", "--file-system", str(tmp_path / "new" / "store"), "--json", store=tmp_path)
    assert ended.code == 0, ended.err
    assert {row["name"] for row in json.loads(ended.out)} >= {"rename", "lock", "fsync", "exclusive"}


def test_a_folder_that_cannot_be_written_is_said_so():
    with pytest.raises(StoreError, match="cannot write /proc"):
        filesystem.probe_folder(Path("/proc") / str(os.getpid()) / "store")
