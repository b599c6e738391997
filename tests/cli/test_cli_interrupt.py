"""Ctrl-C ends the installed command with exit code 130 and leaves nothing behind, its Prefect server included."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from launcher import ENVIRONMENT, ROOT, Launcher, SmallRun, apart, copy_store

from infuser_core.store.runs import is_held


def processes_of(store: Path) -> list[int]:
    """Living processes that know this store: the run itself and its Prefect server."""
    mark = f"INFUSER_STORE={store}\0".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (folder / "environ").read_bytes() and "Z" not in (folder / "stat").read_text().split()[2]:
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def wait_for(condition, what: str) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.05)


@pytest.mark.slow
def test_an_interrupted_run_ends_cleanly(launch: Launcher, small_run: SmallRun, tmp_path: Path):
    store = copy_store(small_run.root, tmp_path / "store", without=("judge",))
    environment = {**os.environ, **ENVIRONMENT, "INFUSER_STORE": str(store)}
    environment.pop("PREFECT_API_URL", None)
    process = subprocess.Popen(
        [Path(sys.executable).with_name("infuser"), *small_run.arguments],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    wait_for(lambda: any((store / ".staging").glob("judge-*")), "the judge to be at work")
    assert is_held(store, small_run.name)
    os.killpg(process.pid, signal.SIGINT)  # what a terminal does
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    said, told = apart(err)
    first, hint = said.splitlines()
    assert (first, out) == ("infuser: interrupted", "") and "infuser resume" in hint
    assert "stopping judge at its next safe point" in told

    wait_for(lambda: processes_of(store) == [], "its processes to end")
    assert list((store / ".staging").iterdir()) == []
    assert "  interrupted  0/2 " in launch("runs", store=store).out
