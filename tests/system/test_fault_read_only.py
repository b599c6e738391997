"""A store that may only be read is refused for writing in one line, and can be looked at as ever."""

import shutil

import pytest
from fault_tools import remount, small_disk
from launcher import Launcher, SmallRun

pytestmark = pytest.mark.long


@pytest.mark.slow
def test_a_read_only_store_is_refused_for_writing_and_readable(launch: Launcher, small_run: SmallRun, tmp_path):
    with small_disk(tmp_path / "disk", "200m") as store:
        shutil.copytree(small_run.root, store, dirs_exist_ok=True, ignore=shutil.ignore_patterns("prefect"))
        remount(store, "ro")
        for arguments in (["resume", "small"], small_run.arguments):
            refused = launch(*arguments, store=store)
            assert refused.code == 3, refused
            message, hint = refused.err.splitlines()
            assert message == f"infuser: cannot write the store at {store}: Read-only file system"
            assert "INFUSER_STORE" in hint
        for command in ("runs", "status", "digest", "result"):
            looked = launch(command, *([] if command == "runs" else ["small"]), store=store)
            assert (looked.code == 0 and "small" in looked.out) or command == "digest", looked
        assert "small  done" in launch("runs", store=store).out

        remount(store, "rw")
        assert launch("resume", "small", store=store).code == 0
