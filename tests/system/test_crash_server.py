"""A killed run leaves no Prefect server behind."""

import os
import subprocess
import sys
import time
from pathlib import Path

from flows import deployment

# Starts a server as `infuser run` does, says which process it is, and waits to be killed.
OWNER = """
import time
from flows import deployment
process = deployment.start(deployment.free_port(), extra={})
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


def test_an_announced_server_that_is_gone_is_not_used(tmp_path: Path):
    deployment.announce(tmp_path, deployment.address(deployment.free_port()))
    assert deployment.announced(tmp_path) == ""
