"""Waiting for the machines of a job: nobody is forgotten, and who is late is named."""

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from places import ROOT

from infuser_core.engines.cluster.wait import main, missing, wait_for
from infuser_core.errors import EngineError

# Ray replaces a loopback address by the machine's, unless the platform has no clusters.
ALONE = {**os.environ, "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "5" * 64}
WAIT = [sys.executable, "-m", "infuser_core.engines.cluster.wait"]


def test_names_count_with_their_domain_and_without():
    assert missing(["a1", "a2.cluster", "A3"], ["a1.cluster", "a2", "a3"]) == []
    assert missing(["a1", "a11", "a2"], ["a1"]) == ["a11", "a2"]
    assert missing(["10.0.0.1", "10.0.0.2"], ["head", "10.0.0.1"]) == ["10.0.0.2"]


def test_it_goes_on_when_the_last_one_is_there_and_names_who_never_comes():
    seen = iter([[], ["a"], ["a", "b"]])
    wait_for(["a", "b"], lambda: next(seen), seconds=60)
    with pytest.raises(EngineError, match=r"2 of 3 machines have not joined Ray within 0 s: b, c"):
        wait_for(["a", "b", "c"], lambda: ["a"], seconds=0)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def test_a_head_that_never_listens_is_late_too(capsys: pytest.CaptureFixture[str]):
    assert main([f"127.0.0.1:{free_port()}", "0", "first", "second"]) == EngineError.exit_code
    assert "2 of 2 machines have not joined Ray within 0 s: first, second" in capsys.readouterr().err


@pytest.fixture
def starting() -> Iterator[str]:
    """Address of a head that is being started on loopback."""
    port = free_port()
    # Ray's sockets lie below this folder, and their paths may have 107 bytes.
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        options = ["--node-ip-address=127.0.0.1", f"--port={port}", "--num-cpus=1", f"--temp-dir={folder}", "--block"]
        options += ["--include-dashboard=false", "--disable-usage-stats"]
        head = subprocess.Popen(
            [str(Path(sys.executable).parent / "ray"), "start", "--head", *options],
            env=ALONE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        yield f"127.0.0.1:{port}"
        head.terminate()
        head.wait(60)


@pytest.mark.slow
def test_a_real_cluster_is_waited_for_from_before_it_listens(starting: str):
    started = time.monotonic()
    waited = wait_on(starting, "60", socket.gethostname())
    assert waited.returncode == 0, waited.stderr
    late = wait_on(starting, "1", socket.gethostname(), "absent-host")
    assert late.returncode == EngineError.exit_code
    assert "1 of 2 machines have not joined Ray within 1 s: absent-host" in late.stderr
    assert time.monotonic() - started < 100


def wait_on(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*WAIT, *arguments], cwd=ROOT, env=ALONE, capture_output=True, text=True)


CONNECT = """
import atexit
from infuser_core.engines.cluster.machines import connected
from infuser_core.errors import EngineError
try:
    ray = connected(None, cores=1)
    print(ray.get_runtime_context().get_session_name())
    atexit.register(lambda: print(len(ray.nodes())))
except EngineError as error:
    print(error.message, error.hint)
"""


@pytest.mark.slow
@pytest.mark.parametrize("variable", ["TMPDIR", "RAY_TMPDIR"])
def test_a_long_temporary_folder_has_a_short_one_for_sockets_or_is_named(tmp_path: Path, variable: str):
    folder = tmp_path / ("t" * 100)
    folder.mkdir()
    environment = {name: value for name, value in os.environ.items() if name != "RAY_TMPDIR"}
    done = subprocess.run(
        [sys.executable, "-c", CONNECT],
        env={**environment, variable: str(folder)}, cwd=ROOT, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    wanted = "session_" if variable == "TMPDIR" else f"{folder} is too long for Ray's sockets"
    assert done.stdout.startswith(wanted), done.stdout
    assert variable == "TMPDIR" or "set RAY_TMPDIR" in done.stdout
    # Ray runs until this process has disconnected from it.
    assert variable == "RAY_TMPDIR" or done.stdout.endswith("\n1\n"), done.stdout
