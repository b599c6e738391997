"""What `infuser serve` refuses, and what it leaves behind: nothing."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flows import deployment
from flows.deployment import _check_free
from infuser_core.errors import UsageError


def test_a_taken_port_is_named_with_a_free_one(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind((deployment.HOST, 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(UsageError, match=f"port {port}") as caught:
            _check_free(tmp_path, port)
    assert "infuser serve --port" in caught.value.hint


def test_the_announcement_of_a_dead_server_is_passed_over(tmp_path: Path) -> None:
    deployment.announce(tmp_path, deployment.address(deployment.free_port()))
    assert deployment.announced(tmp_path) == ""
    _check_free(tmp_path, deployment.free_port())


@pytest.mark.skipif(sys.platform != "linux", reason="the parent-death signal is Linux's")
def test_a_killed_owner_leaves_no_server_behind(tmp_path: Path) -> None:
    code = (
        "import time; from flows import deployment; "
        f"print(deployment.start({deployment.free_port()}, extra={{}}).pid, flush=True); time.sleep(60)"
    )
    environment = {**os.environ, "PREFECT_HOME": str(tmp_path)}
    owner = subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    process = int(owner.stdout.readline())
    assert _lives(process)
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    deadline = time.monotonic() + 20
    while _lives(process):
        assert time.monotonic() < deadline, "the server outlived its owner"
        time.sleep(0.05)


def _lives(process: int) -> bool:
    """Whether a process runs; a zombie, which its new parent has not collected yet, does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
