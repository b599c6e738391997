"""Worker processes: messages of any size in both directions, silence, and every end with its reason."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from places import ROOT
from served import eventually

from infuser_core.errors import EngineError
from infuser_core.system.child import Watch
from infuser_core.system.worker import EndedError, WorkerProcess, last_words, wait

CHILD = """
import os, subprocess, sys, time
from infuser_core.system.worker import connect
print("this is printed", flush=True)
pipe = connect(sys.argv[1])
def obey(command, *values):
    if command == "echo": pipe.send(("echo", *values))
    if command == "sleep": time.sleep(*values)
    if command == "compute": pipe.send(("computing",)); 9**9**9
    if command == "raise": raise ValueError("no such thing")
    if command == "end": os._exit(*values)
    if command == "leave":
        os.set_inheritable(pipe.fileno(), True)
        child = subprocess.Popen(["sleep", "60"], close_fds=False)
        pipe.send(("left", child.pid))
        os._exit(3)
    if command == "half":
        os.write(pipe.fileno(), (1000).to_bytes(4, "big") + b"x" * 10)
    if command == "read": pipe.send(("read", sys.stdin.read()))
while True: obey(*pipe.recv())
"""
Make = Callable[[], WorkerProcess]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Starts workers that run CHILD, and ends them."""
    script = tmp_path / "child.py"
    script.write_text(CHILD)
    workers: list[WorkerProcess] = []

    def start() -> WorkerProcess:
        workers.append(started(script))
        return workers[-1]

    yield start
    for worker in workers:
        worker.close()


def started(script: Path) -> WorkerProcess:
    return WorkerProcess(
        [sys.executable, str(script)],
        name="child",
        log=tempfile.TemporaryFile(),
        environment={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def test_both_ends_may_send_first_and_lose_nothing(make: Make):
    worker = make()
    sent = [("echo", place, "x" * 1000 * (place % 50)) for place in range(400)]
    for message in sent:
        worker.send(*message)
    assert [worker.receive(20.0) for _ in sent] == sent
    assert worker.receive() is None and worker.receive(0.05) is None and worker.waiting_seconds() == 0.0


def test_a_message_may_be_large_and_a_stopped_worker_holds_nobody_up(make: Make):
    worker = make()
    worker.send("echo", "y" * 50_000_000)
    assert worker.expect("echo", seconds=60.0)[1] == "y" * 50_000_000
    os.kill(worker.pid, signal.SIGSTOP)
    began = time.monotonic()
    for _ in range(50):
        worker.send("echo", "x" * 1_000_000)
    assert time.monotonic() - began < 5 and worker.receive(0.3) is None and worker.waiting_seconds() >= 0.3
    worker.silence = Watch()
    with pytest.raises(EngineError, match=rf"child \(pid {worker.pid}\) has taken no command for 0 s"):
        worker.require_pace(0.29)
    os.kill(worker.pid, signal.SIGCONT)
    assert all(worker.receive(20.0) for _ in range(50))


def test_half_a_message_is_none(make: Make):
    worker = make()
    worker.send("half")
    assert worker.receive(1.0) is None
    with pytest.raises(EngineError, match="did not answer 'echo' within 0 s"):
        worker.expect("echo", seconds=0.1)


def test_one_wait_hears_the_first_of_several(make: Make):
    slow, quick = make(), make()
    for worker in (slow, quick):
        worker.send("echo", 0)
        worker.expect("echo", seconds=20.0)
    slow.send("sleep", 30)
    quick.send("echo", 1)
    wait([slow, quick], 20.0)
    assert quick.receive() == ("echo", 1) and slow.receive() is None
    quick.send("end", 0)
    began = time.monotonic()
    wait([slow, quick], 20.0)
    assert time.monotonic() - began < 10


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (("end", 3), "ended with status 3"),
        (("raise",), "ended with status 1: ValueError: no such thing"),
        (("kill",), r"was killed by signal 9 \(SIGKILL\)"),
    ],
)
def test_every_end_has_its_reason(make: Make, command: tuple[str, ...], reason: str):
    worker = make()
    if command == ("kill",):
        os.kill(worker.pid, signal.SIGKILL)
    else:
        worker.send(*command)
    for _ in range(2):
        with pytest.raises(EndedError, match=rf"child \(pid {worker.pid}\) {reason}"):
            worker.receive(20.0)
    assert worker.was_killed() is (command == ("kill",))


def test_a_worker_is_gone_even_if_a_child_of_its_own_holds_the_connection(make: Make):
    worker = make()
    worker.send("leave")
    worker.expect("left", seconds=20.0)
    with pytest.raises(EndedError, match="ended with status 3"):
        worker.receive(20.0)


def test_what_a_worker_prints_is_no_output_of_its_parent(make: Make, capfd: pytest.CaptureFixture[str]):
    worker = make()
    worker.send("read")
    assert worker.receive(20.0) == ("read", "")
    assert "printed" not in capfd.readouterr().out


PARENT = """
import os, sys, time
sys.path.insert(0, {root!r})
sys.path.insert(0, {tests!r})
from pathlib import Path
from test_worker import started
worker = started(Path({script!r}))
worker.send("compute")
worker.expect("computing", seconds=20.0)
if os.fork() == 0:
    # A child that outlives its parent holds nothing that keeps the worker alive.
    time.sleep(30)
    os._exit(0)
print(worker.pid, flush=True)
time.sleep(60)
"""


def test_a_worker_ends_with_a_killed_parent_while_it_computes_and_a_forked_child_lives(make: Make, tmp_path: Path):
    make()
    program = PARENT.format(root=str(ROOT), tests=str(Path(__file__).parent), script=str(tmp_path / "child.py"))
    support = os.pathsep.join([str(ROOT / "tests"), str(ROOT / "tests/support")])
    parent = subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": support},
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    assert eventually(lambda: not Path(f"/proc/{pid}").exists(), 20)
    os.killpg(parent.pid, signal.SIGKILL)
    parent.stdout.close()


def test_a_forked_child_leaves_its_parents_worker_alone(make: Make):
    worker = make()
    child = os.fork()
    if child == 0:
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    worker.send("echo", 1)
    assert worker.receive(20.0) == ("echo", 1)


def test_the_last_exception_of_an_output_is_its_last_words():
    log = "INFO ready\nTraceback (most recent call last):\n  boom\ntorch.OutOfMemoryError: no memory\n[rank0] bye\n"
    assert (last_words(log), last_words("INFO ready\n")) == ("torch.OutOfMemoryError: no memory", "")
