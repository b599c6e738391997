"""A killed run leaves no Prefect server behind, and a run needs none: it is a view of the work."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from launcher import Launcher, SmallRun
from places import ROOT

from flows import deployment

# Starts a server as `infuser run` does, says which process it is, and waits to be killed.
OWNER = """
import time
from flows import deployment
process = deployment.start(deployment.listen(), extra={})
print(process.pid, flush=True)
time.sleep(60)
"""


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_the_server_dies_with_a_killed_run(tmp_path: Path):
    environment = {**os.environ, "PREFECT_HOME": str(tmp_path)}
    owner = subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True, env=environment)
    assert owner.stdout is not None
    pid = int(owner.stdout.readline())
    assert lives(pid)
    owner.kill()
    owner.wait()
    deadline = time.monotonic() + 20
    while lives(pid):
        assert time.monotonic() < deadline, "the server is still there"
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize("kills", [1, pytest.param(99, marks=pytest.mark.long)], ids=["once", "for good"])
def test_a_run_whose_server_is_killed_ends_with_the_same_bits(
    launch: Launcher, small_run: SmallRun, tmp_path: Path, kills: int
):
    points, store = tmp_path / "points", tmp_path / "store"
    running = start(small_run, store, INFUSER_POINTS=str(points))
    while running.poll() is None and kills:
        if points.exists() and "rollout_dev:start" in points.read_text():
            for server in servers(running.pid):
                os.kill(server, signal.SIGKILL)
                kills -= 1
        time.sleep(0.05)
    assert running.wait(400) == 0, (tmp_path / "log").read_text()
    assert digest(launch, store) == digest(launch, small_run.root)


@pytest.mark.slow
def test_a_run_goes_on_without_a_server_that_never_answers(launch: Launcher, small_run: SmallRun, tmp_path: Path):
    store, nobody = tmp_path / "store", f"http://127.0.0.1:{deployment.free_port()}/api"
    running = start(small_run, store, PREFECT_API_URL=nobody, INFUSER_SERVER_SECONDS="1")
    assert running.wait(400) == 0
    said = (tmp_path / "log").read_text()
    assert said.count("infuser: warning:") == 1
    assert f"warning: the Prefect server at {nobody} did not answer within 1 s; the run continues without it" in said
    assert digest(launch, store) == digest(launch, small_run.root)


def start(small_run: SmallRun, store: Path, **environment: str) -> "subprocess.Popen[bytes]":
    """The small run as a process of its own, with a server of its own."""
    values = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    with (store.parent / "log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "flows.cli.main", *small_run.arguments],
            cwd=ROOT,
            env={**values, "INFUSER_STORE": str(store), **environment},
            stdout=log,
            stderr=subprocess.STDOUT,
        )


def servers(pid: int) -> Iterator[int]:
    """The living Prefect servers that a process has started."""
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            command = Path(f"/proc/{child}/cmdline")
            if lives(child) and command.exists() and b"flows.server" in command.read_bytes():
                yield child


def digest(launch: Launcher, store: Path) -> str:
    ended = launch("digest", "small", store=store)
    assert ended.code == 0, ended.err
    return ended.out
