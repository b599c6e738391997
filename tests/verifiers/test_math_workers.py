"""The processes behind the mathematics verifier: killed when late, gone with their parent, missed by nobody."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from places import ROOT

from infuser_core.errors import EngineError, KilledProcessError
from infuser_core.verifiers.parts import workers
from infuser_core.verifiers.parts.workers import GRACE_SECONDS, LIMIT_SECONDS, Pool

EQUAL = {"ask": "equal", "answer": r"\sin x", "gold": r"\cos x", "within": [0, 0]}
# Python's power of whole numbers runs in C, where the worker's own clock cannot stop it.
POISON = {"ask": "equal", "answer": "9^{9^{9}}", "gold": "5", "within": [0, 0]}


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    """Shared by the tests that leave it working: a worker takes a second to start."""
    pool = Pool(2)
    yield pool
    pool.close()


def alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    stat = Path(f"/proc/{pid}/stat")
    try:
        return stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def gone(pids: list[int]) -> bool:
    """Whether the processes end soon."""
    deadline = time.monotonic() + 20
    while any(map(alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not any(map(alive, pids))


def test_a_worker_starts_when_needed_outlives_its_thread_is_replaced_when_lost_and_ends_with_its_pool():
    pool = Pool(1)
    assert pool.pids() == []
    thread = threading.Thread(target=pool.ask, args=[EQUAL])
    thread.start()
    thread.join()
    first = pool.pids()
    assert len(first) == 1
    assert pool.ask(EQUAL)[0] == "other"
    assert pool.pids() == first
    os.kill(first[0], signal.SIGKILL)
    assert pool.ask(EQUAL)[0] == "other"
    second = pool.pids()
    assert len(second) == 1 and second != first
    pool.close()
    assert gone(first + second)


def test_requests_of_many_threads_are_all_answered(pool: Pool):
    with ThreadPoolExecutor(6) as threads:
        assert [word for word, _ in threads.map(pool.ask, [EQUAL] * 6)] == ["other"] * 6
    assert len(pool.pids()) <= 2


def test_a_poisoned_request_is_late_and_others_go_on(pool: Pool):
    pool.ask(EQUAL)
    replies: list[workers.Reply] = []
    poisoned = threading.Thread(target=lambda: replies.append(pool.ask(POISON)))
    poisoned.start()
    assert [pool.ask(EQUAL)[0] for _ in range(3)] == ["other"] * 3
    poisoned.join()
    assert replies[0][0] in ("late", "lost", "memory")
    assert replies[0][1] <= LIMIT_SECONDS + GRACE_SECONDS + 1
    assert pool.ask(EQUAL)[0] == "other"


def test_a_forked_child_has_workers_of_its_own():
    shared = workers.pool()
    assert shared.ask(EQUAL)[0] == "other"
    pids = shared.pids()
    child = os.fork()
    if child == 0:
        fresh = workers.pool()
        right = fresh is not shared and fresh.ask(EQUAL)[0] == "other" and not set(fresh.pids()) & set(pids)
        shared.close()
        fresh.close()
        os._exit(0 if right else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert all(map(alive, pids))
    assert shared.ask(EQUAL)[0] == "other"


PARENT = """
import sys, threading, time
from infuser_core.verifiers.parts import workers
pool = workers.pool()
def ask(power):
    pool.ask({"ask": "equal", "answer": power, "gold": "5", "within": [0, 0]})
ask("\\\\sin x")
busy = threading.Thread(target=ask, args=["9^{9^{9}}"], daemon=True)
busy.start()
time.sleep(0.5)
ask("\\\\cos x")
print(*pool.pids(), flush=True)
sys.stdin.read()
"""


def test_workers_die_with_a_parent_that_is_killed_even_while_they_compute():
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert parent.stdout is not None
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    parent.kill()
    parent.wait()
    assert len(pids) == 2
    assert gone(pids)


def test_a_library_that_does_not_import_is_an_error_for_people(tmp_path: Path):
    broken = tmp_path / "worker.py"
    broken.write_text("raise ImportError('no module named math_verify')\n")
    pool = Pool(2, script=broken)
    for _ in range(3):
        with pytest.raises(EngineError, match="no module named math_verify"):
            pool.ask(EQUAL)
    assert pool.pids() == []


def test_a_worker_that_ends_without_a_word_is_an_error_for_people(tmp_path: Path):
    silent = tmp_path / "worker.py"
    silent.write_text("")
    with pytest.raises(EngineError, match="ended with status 0"):
        Pool(1, script=silent).ask(EQUAL)


MUTE = """
import os, sys
from multiprocessing.connection import Connection
asker = Connection(int(sys.argv[1]))
asker.send_bytes(b"ready")
asker.recv_bytes()
"""


def test_a_worker_that_no_signal_reaches_is_killed_after_the_limit(tmp_path: Path):
    deaf = tmp_path / "worker.py"
    deaf.write_text(MUTE + "while True: pass")
    pool = Pool(1, script=deaf)
    word, seconds = pool.ask(EQUAL, seconds=0.5)
    assert word == "late"
    assert 0.5 + GRACE_SECONDS <= seconds < 0.5 + GRACE_SECONDS + 1
    first = pool.pids()
    assert pool.ask(EQUAL, seconds=0.1)[0] == "late"
    assert gone([pid for pid in first if pid not in pool.pids()])
    pool.close()


def test_a_worker_that_crashes_on_a_request_is_lost_and_no_verdict(tmp_path: Path):
    crashing = tmp_path / "worker.py"
    crashing.write_text(MUTE + "os._exit(1)")
    pool = Pool(1, script=crashing)
    assert [pool.ask(EQUAL)[0] for _ in range(2)] == ["lost", "lost"]
    pool.close()


def test_time_in_which_a_worker_does_not_run_is_not_held_against_its_request(tmp_path: Path):
    waiting = tmp_path / "worker.py"
    waiting.write_text(MUTE + f"import time; time.sleep({GRACE_SECONDS + 0.5}); asker.send_bytes(b'same')")
    pool = Pool(1, script=waiting)
    word, seconds = pool.ask(EQUAL, seconds=0.0)
    assert word == "same" and seconds < 0.5
    pool.close()


def test_a_worker_that_takes_no_processor_time_is_replaced_and_its_request_asked_again(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(workers, "IDLE_SECONDS", 0.5)
    pool.ask(EQUAL)
    stopped = pool.pids()
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    assert pool.ask(EQUAL)[0] == "other"
    assert len(set(stopped) - set(pool.pids())) == 1
    for pid in stopped:
        if alive(pid):
            os.kill(pid, signal.SIGCONT)


def test_workers_that_are_killed_one_after_the_other_give_no_verdict_at_all(tmp_path: Path):
    dying = tmp_path / "worker.py"
    dying.write_text(MUTE + "os.kill(os.getpid(), 9)")
    pool = Pool(1, script=dying)
    with pytest.raises(KilledProcessError, match="3 math workers were killed from outside"):
        pool.ask(EQUAL)
    pool.close()


def test_a_worker_may_use_one_gibibyte(pool: Pool):
    pool.ask(EQUAL)
    limits = Path(f"/proc/{pool.pids()[0]}/limits").read_text()
    assert re.search(rf"Max address space\s+{1 << 30}\s", limits)
    assert pool.ask({"ask": "parse", "text": r"\frac{1}{2}"})[0] == "same"


def test_the_arrival_of_a_request_sends_no_signal(pool: Pool):
    pool.ask(EQUAL)
    for pid in pool.pids():
        flags = {path.name: path.read_text().split()[3] for path in Path(f"/proc/{pid}/fdinfo").iterdir()}
        (watched,) = [name for name, octal in flags.items() if int(octal, 8) & os.O_ASYNC]
        assert str(Path(f"/proc/{pid}/fd/{watched}").readlink()).startswith("pipe:")


AT_THE_LIMIT = """
import random, signal, sys, time
sys.argv[1:] = ["0", sys.argv[1]]
from infuser_core.verifiers.parts import symbolic

def answer(request):
    time.sleep(request["seconds"])
    end = time.process_time() + random.uniform(0, 2 * request["seconds"])
    while time.process_time() < end:
        pass
    return "other"

symbolic.decide = answer
signal.signal(signal.SIGPROF, symbolic._raise_late)
said = set()
for _ in range(600):
    # The kernel looks at this clock a few hundred times a second.
    said.add(symbolic._answer_within_limits({"seconds": 0.006}))
print(sorted(said))
"""


def test_a_reply_at_the_very_limit_leaves_the_worker_as_it_was():
    told = subprocess.run(
        [sys.executable, "-c", AT_THE_LIMIT, str(ROOT)], capture_output=True, text=True, cwd=ROOT, timeout=120
    )
    assert told.stdout.strip() == "['late', 'other']", told.stderr
