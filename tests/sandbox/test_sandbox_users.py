"""Both collections as an ordinary user: what is blocked must not be blocked by root's means, nor allowed by them."""

import json
import os
import subprocess
import sys

import pytest
import sandbox_corpus
from contained import needs_sandbox
from places import ROOT

from infuser_core.verifiers.sandbox import containment
from infuser_core.verifiers.sandbox import run as probe
from infuser_core.verifiers.sandbox.cell import PROCESSES
from infuser_core.verifiers.sandbox.containment import NOBODY, find_interpreters
from infuser_core.verifiers.sandbox.program import Case, Limits, Program
from infuser_core.verifiers.sandbox.run import run

pytestmark = needs_sandbox


def as_nobody(*words: str, user: int = NOBODY, **environment: str) -> "subprocess.CompletedProcess[str]":
    """A command of an interpreter that an ordinary user can run; skips where there is none, or no way to become one."""
    if os.geteuid() != 0:
        pytest.skip("everything here runs as an ordinary user already")
    open_ones = [each.executable for each in find_interpreters() if each.hidden_by is None]
    closed = [folder for folder in (ROOT, *ROOT.parents) if not folder.stat().st_mode & 0o005]
    if not open_ones or closed:
        pytest.skip("neither Python nor the checkout is for everybody")
    become = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--", str(open_ones[0]), "-B"]
    known = {"PATH": os.defpath, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}", **environment}
    return subprocess.run([*become, *words], env=known, cwd="/", capture_output=True, text=True, timeout=280)


def test_an_ordinary_user_gets_the_same_verdicts():
    done = as_nobody(str(ROOT / "tests" / "support" / "sandbox_corpus.py"))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["user"], found["cheats"]) == (NOBODY, len(sandbox_corpus.CHEATS))
    assert (found["false_accepts"], found["failures"]) == ([], {})
    assert (found["honest"], found["false_rejects"]) == (len(sandbox_corpus.HONEST[::3]), {})


@pytest.mark.parametrize("place", range(len(find_interpreters())))
def test_every_interpreter_of_this_host_can_be_contained(place: int, monkeypatch: pytest.MonkeyPatch):
    interpreter = find_interpreters()[place]
    if interpreter.hidden_by is not None and os.geteuid() != 0:
        pytest.skip(f"{interpreter.executable} cannot be read")
    found = probe.prove(containment.contain_with_bwrap(interpreter))
    program = Program(source="import sys, os, json\nprint(sys.executable, os.listdir('/box'), os.access('/tmp', 0))")
    monkeypatch.setattr(probe, "find_containment", lambda: found)
    (outcome,) = run(program, [Case()], Limits(seconds=10))
    assert outcome.stdout == f"{interpreter.executable} ['program.py'] False\n"
    # Root shows an installation in a closed folder to the sandbox alone, and at another place than its own.
    assert (f"{containment.VIEW}/lib" in found.walls) == (interpreter.hidden_by is not None)


def test_a_closed_interpreter_is_passed_over_by_an_ordinary_user():
    code = (
        "from infuser_core.verifiers.sandbox import containment, program\n"
        "from pathlib import Path\n"
        "closed = containment._interpreter(Path('/root/bin/python3'), Path('/root'))\n"
        "try: containment.contain_with_bwrap(closed)\n"
        "except program.SandboxUnavailable as error: print(error)\n"
    )
    done = as_nobody("-c", code)
    assert "cannot run /root/bin/python3: /root is closed" in done.stdout, done.stderr
    assert "/usr/bin/python3" in done.stdout


# Whatever a program can ask that depends on who runs it, and that a verdict may depend on.
ASKED = """
import os, threading, time
started = 0
try:
    for _ in range(60):
        threading.Thread(target=time.sleep, args=(1,), daemon=True).start()
        started += 1
except RuntimeError:
    pass
print(started, open("/dev/stdin").read(), os.getgroups())
os.chmod("program.py", 0)
for asked in (lambda: open("program.py"), lambda: os.chown("program.py", 0, 0), lambda: os.nice(-1)):
    try:
        asked()
        print("allowed")
    except OSError as error:
        print(error.errno)
open("/dev/stdout", "a").write("end")
"""
RUN = """
from infuser_core.verifiers.sandbox.program import Case, Limits, Program
from infuser_core.verifiers.sandbox.run import run
(outcome,) = run(Program(source={source!r}), [Case(stdin="5 6")], Limits(seconds=10))
print([str(outcome.status), outcome.stdout, outcome.detail])
"""


def test_a_program_finds_the_same_limits_and_rights_whoever_runs_it():
    code = RUN.format(source=ASKED)
    theirs = as_nobody("-c", code)
    known = {**os.environ, "PYTHONPATH": str(ROOT)}
    ours = subprocess.run([sys.executable, "-c", code], env=known, capture_output=True, text=True, timeout=120)
    assert ours.stdout.startswith("['returned'") and "5 6" in ours.stdout, ours.stderr
    assert theirs.stdout == ours.stdout, theirs.stderr


def test_without_namespaces_a_program_is_counted_once_among_the_processes_of_its_user():
    # Nobody else starts or ends processes under this number meanwhile.
    done = as_nobody("-c", RUN.format(source=ASKED), user=61_234, INFUSER_SANDBOX="unsafe")
    assert f"end{PROCESSES - 1} 5 6" in done.stdout, (done.stdout, done.stderr)
