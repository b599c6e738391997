"""Who holds a run: the kernel's lock here, the lease for other machines, and the rule for a holder that fell silent."""

import json
import os
import platform
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from infuser_core.errors import BusyRunError
from infuser_core.store import lease
from infuser_core.store.runs import hold_run, is_held, refuse_if_held, wait_until_free

HOLDER = """
import sys, time
from pathlib import Path
from infuser_core.store.runs import hold_run
with hold_run(Path(sys.argv[1]), "run") as hold:
    hold.begin_stage("update_solver, iteration 3")
    print("held", flush=True)
    time.sleep(float(sys.argv[2]))
"""


def holder(root: Path, seconds: float = 60.0) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", HOLDER, root, str(seconds)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    return process


def write_lease(root: Path, *, boot: str, age: float) -> Path:
    """A lease of a process on some machine, last touched so many seconds ago."""
    folder = root / "runs" / "run"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "lock").touch()
    record = {"pid": 4711, "started": 1, "boot": boot, "host": "node-7", "since": "2026-01-01 00:00:00"}
    path = folder / lease.FILE
    path.write_text(json.dumps({**record, "token": "t", "killed_for_memory": 0, "doing": "judge"}))
    os.utime(path, (time.time() - age, time.time() - age))
    return path


def test_the_lease_says_who_where_and_since_when(tmp_path: Path):
    with hold_run(tmp_path, "run") as hold:
        hold.begin_stage("judge")
        record = json.loads((tmp_path / "runs" / "run" / lease.FILE).read_text())
        assert (record["pid"], record["host"], record["doing"]) == (os.getpid(), platform.node(), "judge")
        assert record["boot"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        assert hold.dead_lease is None
    assert not (tmp_path / "runs" / "run" / lease.FILE).exists()


def test_a_killed_holders_lease_is_taken_over_at_once_and_says_what_it_did(tmp_path: Path):
    process = holder(tmp_path)
    with pytest.raises(BusyRunError) as caught:
        refuse_if_held(tmp_path, "run")
    assert f"process {process.pid} on {platform.node()}" in caught.value.message and "--wait" in caught.value.hint
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not is_held(tmp_path, "run")
    with hold_run(tmp_path, "run") as hold, hold_run(tmp_path, "other"):
        assert is_held(tmp_path, "run") and is_held(tmp_path, "other")
        assert hold.dead_lease is not None and hold.dead_lease.pid == process.pid
        said = lease.describe_death(hold.dead_lease, "run")
        assert f"process {process.pid}" in said and "was killed in update_solver, iteration 3" in said
    with hold_run(tmp_path, "run") as hold:
        assert hold.dead_lease is None
    assert not is_held(tmp_path, "nobody") and not (tmp_path / "runs" / "nobody").exists()


def test_a_holder_on_another_machine_counts_while_it_stirs(tmp_path: Path):
    write_lease(tmp_path, boot="another boot", age=lease.STALE / 2)
    assert is_held(tmp_path, "run")
    with pytest.raises(BusyRunError) as caught, hold_run(tmp_path, "run"):
        pass
    assert "process 4711 on node-7" in caught.value.message
    assert f"{lease.STALE:.0f} s after its last sign of life" in caught.value.hint


def test_a_silent_holder_on_another_machine_is_taken_over(tmp_path: Path):
    write_lease(tmp_path, boot="another boot", age=lease.STALE + 5)
    assert not is_held(tmp_path, "run")
    with hold_run(tmp_path, "run") as hold:
        assert hold.dead_lease is not None
        assert "fell silent with its machine in judge" in lease.describe_death(hold.dead_lease, "run")


def test_a_clock_that_was_put_back_makes_no_living_holder_dead(tmp_path: Path):
    path = write_lease(tmp_path, boot="another boot", age=-100_000.0)
    beat = threading.Timer(0.3, os.utime, [path])
    beat.start()
    assert is_held(tmp_path, "run")
    beat.join()
    assert is_held(tmp_path, "run")


def test_a_dead_holders_lease_from_the_future_blocks_nobody(tmp_path: Path):
    path = write_lease(tmp_path, boot="another boot", age=-100_000.0)
    assert lease.find_holder_elsewhere(path.parent, patience=0.5) is None
    assert not is_held(tmp_path, "run")
    with hold_run(tmp_path, "run") as hold:
        assert hold.dead_lease is not None and hold.dead_lease.pid == 4711


def test_who_was_taken_over_notices_and_leaves_the_new_lease_alone(tmp_path: Path):
    with hold_run(tmp_path, "run") as hold:
        hold.check()
        path = write_lease(tmp_path, boot="another boot", age=0.0)
        with pytest.raises(BusyRunError, match="taken over by process 4711 on node-7"):
            hold.check()
        hold.begin_stage("judge")
        assert json.loads(path.read_text())["token"] == "t"
    assert json.loads(path.read_text())["token"] == "t"


def test_what_a_killed_writer_left_beside_the_lease_goes_when_the_run_is_taken(tmp_path: Path):
    left = [tmp_path / f"lease.{word}" for word in ("62d0e5.tmp", "62d0e5.dead")]
    for path in left:
        path.write_text("{}")
    with lease.hold(tmp_path, "run"):
        assert [path for path in left if path.exists()] == []


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": 1}'])
def test_a_torn_lease_is_no_lease(tmp_path: Path, content: str):
    write_lease(tmp_path, boot="", age=0.0).write_text(content)
    assert not is_held(tmp_path, "run")
    with hold_run(tmp_path, "run") as hold:
        assert hold.dead_lease is None and is_held(tmp_path, "run")
        hold.check()


def test_asking_all_the_time_keeps_nobody_from_starting(tmp_path: Path):
    ask = "import sys\nfrom pathlib import Path\nfrom infuser_core.store.runs import is_held\n"
    ask += "while True: is_held(Path(sys.argv[1]), 'run')"
    with hold_run(tmp_path, "run"):
        pass
    asking = [subprocess.Popen([sys.executable, "-c", ask, tmp_path]) for _ in range(2)]
    try:
        time.sleep(1.0)
        for _ in range(20):
            with hold_run(tmp_path, "run"):
                assert is_held(tmp_path, "run")
    finally:
        for process in asking:
            process.kill()
            process.wait()


def test_whoever_waits_gets_the_run_after_its_holder(tmp_path: Path):
    process = holder(tmp_path, 1.0)
    wait_until_free(tmp_path, "run")
    assert process.wait(timeout=10) == 0
    with hold_run(tmp_path, "run") as hold:
        assert hold.dead_lease is None
