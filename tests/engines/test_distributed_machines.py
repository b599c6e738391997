"""Weights reach engines of other machines through memory: two Ray nodes, a trainer on one of them or on both."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from places import ROOT, SUPPORT
from ray_nodes import Nodes
from test_distributed_ranks import gone

pytestmark = pytest.mark.distributed

DRIVER = [sys.executable, str(SUPPORT / "handing_driver.py")]
PATIENCE = 600.0
APART, TURNS = (0, False), (4, True)
"""Ranks, and whether engines run on their machines: the local trainer beside engines elsewhere, two ranks on each."""


def start(nodes: Nodes, folder: Path, how: tuple[int, bool], **environment: str) -> subprocess.Popen[bytes]:
    folder.mkdir()
    words = [nodes.address, str(folder), str(how[0]), str(int(how[1]))]
    with (folder / "log").open("wb") as log:
        own = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)} | environment
        return subprocess.Popen([*DRIVER, *words], env=own, stdin=subprocess.PIPE, stdout=log, stderr=log)


def told(folder: Path) -> list[dict[str, Any]]:
    """What was told of every change so far, the first being that of fresh engines."""
    path = folder / "told"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def changes(driver: subprocess.Popen[bytes], folder: Path) -> list[dict[str, Any]]:
    driver.communicate(timeout=PATIENCE)
    assert driver.returncode == 0, (folder / "log").read_text()
    return told(folder)


@pytest.mark.parametrize("how", [APART, pytest.param(TURNS, marks=pytest.mark.long)], ids=["apart", "turns"])
def test_no_engine_reads_a_file_at_a_change_and_rows_are_those_of_the_files(
    nodes: Nodes, tmp_path: Path, how: tuple[int, bool]
) -> None:
    memory, files = tmp_path / "handed", tmp_path / "files"
    drivers = [start(nodes, memory, how), start(nodes, files, how, HANDING_FILES="1")]
    handed, from_files = (changes(*each) for each in zip(drivers, (memory, files), strict=True))
    assert [each["channel"] for each in handed] == ["fresh", "memory", "memory"]
    assert all((each["starts"], each["engines"]) == (1, handed[0]["engines"]) for each in handed)
    assert all(found["tensors"] == 25 for each in handed for found in each["agreements"])
    looked: dict[int, list[str]] = {}
    for line in nodes.reads.read_text().splitlines():
        pid, path = line.split(maxsplit=1)
        if int(pid) in handed[0]["engines"]:
            looked.setdefault(int(pid), []).append(path)
    assert len(looked) == len(handed[0]["engines"]) == (2 if how == TURNS else 1)
    for first, *later in looked.values():
        assert first.endswith("anchor/model.safetensors")
        assert len(later) == 2 and all(path.startswith("/proc/") for path in later)
    # Each of its own machine's memory.
    assert len({path.split("/")[2] for _, *later in looked.values() for path in later}) == len(looked)
    assert [each["channel"] for each in from_files] == ["fresh", "files", "files"]
    assert [each["drawn"] for each in handed] == [each["drawn"] for each in from_files]


@pytest.mark.long
def test_a_copy_with_a_hole_is_noticed_and_fresh_engines_read_the_files(nodes: Nodes, tmp_path: Path) -> None:
    folder = tmp_path / "holes"
    found = changes(start(nodes, folder, APART, HANDING_HOLE="1"), folder)
    assert [(each["channel"], each["starts"]) for each in found] == [("fresh", 1), ("fresh", 2), ("fresh", 3)]
    assert (folder / "log").read_text().count("tensors differ") == 2


@pytest.mark.long
def test_nothing_is_left_in_memory_after_a_kill(nodes: Nodes, tmp_path: Path) -> None:
    folder = tmp_path / "killed"
    driver = start(nodes, folder, TURNS, HANDING_STAY="1")
    until(lambda: len(told(folder)) == 3 or driver.poll() is not None)
    engines = {pid for each in told(folder) for pid in each["engines"]}
    assert len(engines) == 2 and len(holders()) >= 2, (folder / "log").read_text()
    os.kill(driver.pid, signal.SIGKILL)
    driver.communicate()
    until(lambda: not holders() and all(map(gone, engines)))


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def holders() -> set[int]:
    """Processes that hold weights in memory."""
    found = set()
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if "infuser-weights" in str(link.readlink()):
                found.add(int(link.parts[2]))
        except OSError:
            continue
    return found
