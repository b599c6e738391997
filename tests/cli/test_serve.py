"""What `infuser serve` refuses, and what it leaves behind: nothing."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flows import deployment
from infuser_core.errors import UsageError


def test_a_taken_port_is_named_with_a_free_one() -> None:
    with deployment.listen() as other:
        port = other.getsockname()[1]
        with pytest.raises(UsageError, match=f"port {port}") as caught:
            deployment.listen(port)
    assert "infuser serve --port" in caught.value.hint


def test_a_served_store_is_not_served_again(tmp_path: Path) -> None:
    with deployment._claim(tmp_path), pytest.raises(UsageError, match="served already"):
        deployment._claim(tmp_path).__enter__()


def test_what_needs_a_server_says_that_none_runs(tmp_path: Path) -> None:
    for call in (deployment.shell_lines, deployment.require_server):
        with pytest.raises(UsageError, match="no `infuser serve` that you may use runs") as caught:
            call(tmp_path)
        assert "start it" in caught.value.hint and str(tmp_path) in caught.value.message


def test_the_announcement_of_a_dead_server_is_passed_over(tmp_path: Path) -> None:
    path = deployment.announcement(tmp_path)
    with deployment.listen() as somebody_else:
        path.write_bytes(profile(deployment.address(somebody_else)))
        assert deployment.running_server(tmp_path) is None
    with deployment._claim(tmp_path) as file:
        assert file.read() == b"" and path.stat().st_mode & 0o777 == 0o600


def test_no_damage_of_a_living_announcement_is_a_traceback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with deployment.listen() as nobody:
        whole = profile(deployment.address(nobody))
    with deployment._claim(tmp_path) as file:
        for place in range(len(whole)):
            damaged = bytearray(whole)
            damaged[place] ^= 0x80 if place % 2 else 0x10
            file.seek(0)
            file.write(damaged)
            file.flush()
            assert deployment.running_server(tmp_path) is None
    assert "server.toml is damaged" in capsys.readouterr().err


def profile(url: str) -> bytes:
    text = f'active = "infuser"\n[profiles.infuser]\nPREFECT_API_URL = "{url}"\nPREFECT_API_AUTH_STRING = "word"\n'
    return text.encode()


@pytest.mark.skipif(sys.platform != "linux", reason="the parent-death signal is Linux's")
def test_a_killed_owner_leaves_no_server_behind(tmp_path: Path) -> None:
    code = (
        "import pathlib, sys, time; from flows import deployment; "
        "print(deployment.start(deployment.listen(), pathlib.Path(sys.argv[1])).pid, flush=True); time.sleep(60)"
    )
    environment = {**os.environ, "PREFECT_HOME": str(tmp_path)}
    command = [sys.executable, "-c", code, str(tmp_path)]
    owner = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
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
