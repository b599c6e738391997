"""A group of ranks works or fails as one, within a bounded time, and leaves no process behind."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from places import ROOT, SUPPORT

from infuser_core.engines.cluster.ranks import RankGroup
from infuser_core.errors import CheckpointError, EngineError

pytestmark = pytest.mark.distributed

WORKER = "rank_workers:Obedient"
PATIENCE = 60.0
ENVIRONMENT = os.environ | {
    "PYTHONPATH": os.pathsep.join([str(ROOT), str(SUPPORT)]),
    "RAY_USAGE_STATS_ENABLED": "0",
}

DRIVER = """
import sys, time
from infuser_core.engines.cluster.ranks import RankGroup
group = RankGroup("rank_workers:Obedient", "", ranks=2)
print(*group.call("process", [()] * 2), flush=True)
group.call("fail", [(600.0, "")] * 2)
"""


@pytest.fixture
def group() -> Iterator[RankGroup]:
    found = RankGroup(WORKER, "", ranks=2, silence=10.0)
    yield found
    found.close()


def processes(group: RankGroup) -> list[int]:
    return group.call("process", [()] * 2)


def gone(pid: int) -> bool:
    """Whether a process has ended; one that waits for its parent's look counts as ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def eventually(holds: Callable[[], bool], seconds: float = PATIENCE) -> bool:
    deadline = time.monotonic() + seconds
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.2)
    return holds()


def test_results_come_by_rank_and_progress_adds_up(group: RankGroup) -> None:
    assert group.call("say", [("a",), ("b",)]) == ["0 of 2: a", "1 of 2: b"]
    seen: list[tuple[int, int, int]] = []
    assert group.call("work", [(8,), (8,)], progress=lambda *told: seen.append(told), total=16) == [8, 8]
    assert seen[-1][0] > 2 and seen[-1][1] == 16 and seen[-1][2] == 10 * seen[-1][0]
    assert group.alive() and not group.failed


def test_an_exception_on_one_rank_does_not_leave_the_others_waiting(group: RankGroup) -> None:
    pids = processes(group)
    with pytest.raises(EngineError, match=r"rank 1 failed in fail: RuntimeError: out of luck"):
        group.call("fail", [(600.0, ""), (0.0, "out of luck")])
    assert group.failed and not group.alive()
    assert eventually(lambda: all(gone(pid) for pid in pids))
    with pytest.raises(EngineError, match="ranks are gone"):
        group.call("say", [("a",), ("b",)])


def test_our_own_errors_keep_their_kind(group: RankGroup) -> None:
    with pytest.raises(CheckpointError, match="a bad folder") as raised:
        group.call("fail", [(600.0, ""), (0.0, "ours")])
    assert raised.value.hint == "look elsewhere"


def test_a_rank_that_refuses_to_start_says_why() -> None:
    with pytest.raises(CheckpointError, match="no such folder"):
        RankGroup(WORKER, "refuse 1", ranks=2)


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (signal.SIGKILL, "rank 1 died in fail"),
        pytest.param(signal.SIGSTOP, "rank 1 has not answered for 10 s", marks=pytest.mark.long),
    ],
)
def test_a_rank_that_is_killed_or_stopped_is_named(group: RankGroup, number: int, said: str) -> None:
    pids = processes(group)
    threading.Timer(2.0, os.kill, (pids[1], number)).start()
    with pytest.raises(EngineError, match=said):
        group.call("fail", [(600.0, ""), (600.0, "")])
    assert eventually(lambda: all(gone(pid) for pid in pids))


def test_a_driver_that_gives_up_ends_its_ranks(group: RankGroup) -> None:
    pids = processes(group)

    def stop(*_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        group.call("work", [(600,), (600,)], progress=stop, total=1200)
    assert eventually(lambda: all(gone(pid) for pid in pids))


@pytest.mark.long
def test_ranks_end_with_their_driver_and_listen_to_nobody_outside() -> None:
    driver = subprocess.Popen([sys.executable, "-c", DRIVER], stdout=subprocess.PIPE, text=True, env=ENVIRONMENT)
    assert driver.stdout is not None
    pids = [int(word) for word in driver.stdout.readline().split()]
    family = descendants(driver.pid)
    try:
        assert len(pids) == 2 and set(pids) <= set(family)
        addresses = {address for pid in family for address in listening(pid)}
        assert addresses and addresses <= {"0100007F", "0000000000000000FFFF00000100007F"}
    finally:
        driver.kill()
        driver.wait()
    assert eventually(lambda: all(gone(pid) for pid in pids))
    # Ray's own agents look for their parent at leisure.
    assert eventually(lambda: all(gone(pid) for pid in family), 3 * PATIENCE)


def descendants(pid: int) -> list[int]:
    """Processes below a process."""
    below: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended since
            below += map(int, path.read_text().split())
    return below + [each for child in below for each in descendants(child)]


def listening(pid: int) -> set[str]:
    """Local addresses, in the kernel's hexadecimal, that a process accepts connections on."""
    inodes = set()
    for path in Path(f"/proc/{pid}/fd").glob("*"):
        try:
            inodes.add(str(path.readlink()).removeprefix("socket:[").removesuffix("]"))
        except OSError:
            continue
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and words[9] in inodes:
                found.add(words[1].partition(":")[0])
    return found
