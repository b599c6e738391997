"""Killed and stopped runs: the next one resumes from the last stage, one holder at a time, and no process is left."""

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
from crash_points import (
    COMPLETE,
    CORPUS,
    FIRST,
    LAST,
    PHASES,
    POINTS,
    SECOND,
    Point,
    content,
    forget_newest,
    mismatches,
    orphans,
    passed,
    points_of,
)
from launcher import Launcher, SmallRun, copy_store
from places import ROOT

from infuser_core.errors import BusyRunError
from infuser_core.store import lease
from infuser_core.store.journal import Journal
from infuser_core.store.recipe import MANIFEST
from infuser_core.store.runs import hold_run, is_held, refuse_if_held, wait_until_free
from infuser_core.system.child import count_memory_kills

# The second iteration, whose AdamW moments come from the first, and whatever else repeats.
AGAIN = ["rollout_dev:inside", "update_generator:start", "update_solver:before_rename", "respond:inside"]
CHAINS = {"corpus": CORPUS, "first half": FIRST, "second half": SECOND, "last": LAST}


def kills_of(chain: str) -> list[str]:
    points = [point.name for phase in CHAINS[chain] for point in chosen_points(phase)]
    return [*points, *(AGAIN if chain == "second half" else [])]


def chosen_points(phase: str) -> list[Point]:
    """All points of a phase, or one of each sort: phases take turns with the kinds."""
    points = points_of(phase)
    if os.environ.get("INFUSER_CRASH_SWEEP") == "all":
        return points
    turn = PHASES.index(phase)
    sorts = [[point for point in points if point.complete == complete] for complete in (False, True)]
    return [sort[turn % len(sort)] for sort in sorts if sort]


def kill_everywhere(launch: Launcher, run: SmallRun, store: Path, chain: str, listing: Path) -> None:
    """One attempt per point. Two points of a stage leave its artifact complete: it is taken away between them."""
    arguments = run.arguments
    for kill in kills_of(chain):
        before = set((store / "artifacts").glob("*/*"))
        killed = launch(*arguments, store=store, INFUSER_CRASH_AT=kill, INFUSER_POINTS=str(listing))
        assert killed.code == -signal.SIGKILL, f"{kill}: {killed}"
        arguments = ["resume", run.name]
        assert not is_held(store, run.name)
        assert not Journal(store, run.name).is_finished()
        half = [folder for folder in (store / "artifacts").glob("*/*") if not (folder / MANIFEST).is_file()]
        assert half == [], f"half an artifact after {kill}"
        if kill.endswith(":after_rename"):
            forget_newest(store, kill.partition(":")[0], before)


def test_the_turns_reach_every_kind_of_point():
    kinds = {point.kind for phase in PHASES for point in chosen_points(phase)}
    assert kinds >= {*POINTS}


def test_every_stage_of_the_pipeline_is_in_a_chain():
    assert sorted(phase for phases in CHAINS.values() for phase in phases) == sorted(PHASES)
    assert {Point(phase=phase, kind=kind).complete for phase in PHASES for kind in COMPLETE} == {True}
    for phase in PHASES:
        kinds = [point.kind for point in points_of(phase) if point.kind in POINTS]
        assert kinds == [kind for kind in POINTS if kind in kinds]
        assert {"start", "before_commit", "before_rename", "after_rename", "journalled"} <= set(kinds)


@pytest.mark.slow
@pytest.mark.parametrize(
    "chain", [name if name == "second half" else pytest.param(name, marks=pytest.mark.long) for name in CHAINS]
)
def test_a_run_that_is_killed_at_every_point_ends_in_the_same_bits(
    launch: Launcher, small_run: SmallRun, tmp_path: Path, chain: str
):
    store, listing = tmp_path / "store", tmp_path / "points"
    store.mkdir()
    if chain != "corpus":
        reached = PHASES[: PHASES.index(CHAINS[chain][0])]
        # What comes before is there already; phases of the loop repeat, so only the corpus can be handed over whole.
        done = CORPUS if chain in ("first half", "second half") else reached
        copy_store(small_run.root, store, without=tuple(phase for phase in PHASES if phase not in done))
    kill_everywhere(launch, small_run, store, chain, listing)

    finished = launch("resume", small_run.name, store=store, INFUSER_POINTS=str(listing))
    assert finished.code == 0, finished.err
    assert list(orphans(store)) == []
    assert mismatches(content(small_run.root, small_run.name), content(store, small_run.name)) == []
    digests = [launch("status", "--digest", small_run.name, store=root).out for root in (store, small_run.root)]
    assert digests[0] == digests[1]

    met = {point.name for point in passed(listing) if point.phase in CHAINS[chain]}
    assert met == {point.name for phase in CHAINS[chain] for point in points_of(phase)}
    if chain == "corpus":
        assert {point.phase for point in passed(listing)} == set(PHASES), "a new stage needs its place in a chain"


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
        assert f"process {process.pid}" in said
        assert "was killed (signal 9) during update_solver, iteration 3; continuing" in said
    with hold_run(tmp_path, "run") as hold:
        assert hold.dead_lease is None
    assert not is_held(tmp_path, "nobody") and not (tmp_path / "runs" / "nobody").exists()


@pytest.mark.parametrize(("more", "groups", "is_suspected"), [(0, "", False), (1, "", True), (1, "0::/other", False)])
def test_memory_is_suspected_only_if_a_process_of_the_same_control_group_was_killed_for_it(
    tmp_path: Path, more: int, groups: str, is_suspected: bool
):
    path = write_lease(tmp_path, boot=Path("/proc/sys/kernel/random/boot_id").read_text().strip(), age=1)
    own = {"control_groups": groups or Path("/proc/self/cgroup").read_text()}
    path.write_text(
        json.dumps({**json.loads(path.read_text()), **own, "killed_for_memory": (count_memory_kills() or 0) - more})
    )
    with hold_run(tmp_path, "run") as hold:
        assert hold.dead_lease is not None
        said = lease.describe_death(hold.dead_lease, "run")
    assert ("was killed (signal 9) during judge; possibly out of memory; continuing" in said) == is_suspected


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
        assert "fell silent with its machine during judge" in lease.describe_death(hold.dead_lease, "run")


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


STOPPED = 5.0
CONVERTER = """
from infuser_core.system import child
print("go", flush=True)
work = "import time; [time.sleep(.1) for _ in range(12)]; print('text')"
ended = child.run([sys.executable, "-c", work], wall_seconds=3.0)
print([ended.fault, ended.status, ended.out.decode()])
"""
PROGRAM = """
from infuser_core.verifiers.sandbox.program import Case, Limits, Program
from infuser_core.verifiers.sandbox.run import find_containment, run
find_containment()
print("go", flush=True)
program = Program(source="import time; time.sleep(1.2); print('text')")
(outcome,) = run(program, [Case()], Limits(seconds=3.0, total_seconds=4.0))
print([str(outcome.status), outcome.stdout])
"""
MATHEMATICS = """
from infuser_core.verifiers.parts.workers import pool
own = pool()
own.ask({"ask": "parse", "text": "1"})
print("go", flush=True)
equal = {"ask": "equal", "within": [0, 0], "gold": "x"}
found = {own.ask(equal | {"answer": f"x+{number}"})[0] for number in range(1, 1000)}
print(sorted(found & {"late", "lost"}))
"""
WORK = {
    "converter": (CONVERTER, "['', 0, 'text\\n']"),
    "program": (PROGRAM, "['returned', 'text\\n']"),
    "mathematics": (MATHEMATICS, "[]"),
}


def tree(pid: int) -> list[int]:
    """The process and all its descendants, ancestors first."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        parents.setdefault(parent, []).append(int(entry.name))
    found = [pid]
    for each in found:
        found += parents.get(each, [])
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("work", "said"), WORK.values(), ids=WORK)
def test_a_stop_of_the_whole_tree_changes_no_verdict(work: str, said: str):
    process = subprocess.Popen(
        [sys.executable, "-c", f"import sys\n{work}"], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert process.stdout is not None and process.stdout.readline() == "go\n"
    time.sleep(0.4)
    stopped = tree(process.pid)
    assert len(stopped) > 1
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(STOPPED)
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)
    assert process.communicate(timeout=60)[0].strip() == said
