"""A full disk stops the run with a clear message; nothing is half-written, and with room it ends in the same bits."""

import shutil
from pathlib import Path

import pytest
from fault_tools import remount, small_disk, used
from launcher import Launcher, SmallRun

from infuser_core.errors import StoreError
from infuser_core.store.runs import Journal, create_run
from infuser_core.store.store import MANIFEST

pytestmark = pytest.mark.long

LEFT = ("update_generator", "update_solver", "respond", "validate", "select", "leakage", "evaluate")


def fill(small_run: SmallRun, store: Path) -> None:
    """Copies: another file system has no hard links to this one."""
    for kind in (small_run.root / "artifacts").iterdir():
        if kind.name not in LEFT:
            shutil.copytree(kind, store / "artifacts" / kind.name)


@pytest.mark.slow
@pytest.mark.parametrize("spare", [64 * 1024, 3 * 1024 * 1024])
def test_a_full_disk_is_said_and_costs_nothing(launch: Launcher, small_run: SmallRun, tmp_path, spare: int):
    with small_disk(tmp_path / "disk", "200m") as store:
        fill(small_run, store)
        remount(store, f"size={used(store) + spare}")
        ended = launch(*small_run.arguments, store=store)
        assert ended.code == 3, ended
        message, hint = ended.err.splitlines()
        assert str(store) in message and "No space left" in message.replace("no space", "No space")
        assert "free some space" in hint and "infuser resume" in hint
        half = [folder for folder in (store / "artifacts").glob("*/*") if not (folder / MANIFEST).is_file()]
        assert half == [] and list((store / ".staging").iterdir()) == []

        remount(store, "size=200m")
        resumed = launch("resume", store=store)
        assert resumed.code == 0, resumed.err
        assert launch("digest", store=store).out == launch("digest", "small", store=small_run.root).out


def test_a_line_that_the_disk_tore_does_not_swallow_the_next(tmp_path):
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
