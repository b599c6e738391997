"""A tree of processes that was stopped for a while, as by Ctrl-Z, judges what it works on as one that was not."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from places import ROOT

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
