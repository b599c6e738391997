"""The sandbox itself: what it reports if it fails, and the users that it runs as."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

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
HEAD = """
import os, resource, sys
from infuser_core.errors import InfuserError
from infuser_core.verifiers.sandbox import run as probe
from infuser_core.verifiers.sandbox.program import Case, Limits, Program
from infuser_core.verifiers.sandbox.run import run
from infuser_core.verifiers import code
def one(): return code.verify_solution("print(1)", [{"stdin": "", "stdout": "1"}])
"""
WITHOUT_BUBBLEWRAP = ["bwrap", "--dev-bind", "/", "/", "--ro-bind", "/dev/null", "/usr/bin/bwrap", "--"]
CHECKS = """
from pathlib import Path
from infuser_core.config.overlays import load
from infuser_core.planning.preflight import preflight
def check(*names, overrides=()):
    try: print(preflight(load([Path(f"configs/{name}.yaml") for name in names], overrides)))
    except InfuserError as error: print(error)
check("nano-wide")
check("nano-wide", "baseline/absolute_zero", overrides=["evaluate.benchmarks=[]"])
check("nano")
"""


def python(text: str, *before: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*before, sys.executable, "-c", HEAD + text],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_a_host_without_user_namespaces_is_refused_and_told_what_to_do():
    walls = ["bwrap", "--dev-bind", "/", "/", "--unshare-user", "--uid", "1000", "--disable-userns", "--"]
    done = python("try: one()\nexcept InfuserError as error: print(type(error).__name__, error)", *walls)
    assert done.stdout.startswith("SandboxUnavailable no sandbox 'bwrap' on this host"), done.stderr
    assert "INFUSER_SANDBOX=unsafe" in done.stdout


def test_a_host_without_bubblewrap_is_refused_and_told_what_to_do():
    done = python("try: one()\nexcept InfuserError as error: print(error)", *WITHOUT_BUBBLEWRAP)
    assert "no bwrap command on this host" in done.stdout, done.stderr
    assert "install bubblewrap" in done.stdout


def test_a_run_that_will_need_the_sandbox_is_refused_before_it_starts(tmp_path: Path):
    done = python(CHECKS, *WITHOUT_BUBBLEWRAP, INFUSER_STORE=str(tmp_path / "store"))
    examined, trained, neither = done.stdout.splitlines()
    assert "no bwrap command on this host" in examined and "no bwrap command on this host" in trained, done.stderr
    assert neither == "None"


def test_the_weaker_mode_must_be_asked_for_by_name_and_says_so_in_every_reason():
    done = python("print(one())", INFUSER_SANDBOX="unsafe")
    assert "all tests (unsafe sandbox)" in done.stdout, done.stderr
    done = python("try: one()\nexcept InfuserError as error: print(error)", INFUSER_SANDBOX="none")
    assert "INFUSER_SANDBOX = 'none'" in done.stdout


# What needs no walls: a claim is compared outside, whatever contains the program that makes it.
INTEGRITY = [
    "always_equal", "always_equal_int", "always_equal_text", "lying_list", "lying_class", "not_a_number", "infinity",
    "every_answer", "booleans", "read_frames", "read_objects", "patch_builtins", "patch_encoder", "patch_the_line",
    "forge_frames", "forge_with_nonce", "forge_length", "steal_requests", "flood_answers", "exit_zero",
    "exit_politely", "exit_at_import", "hang_at_import", "exit_handler", "exception_says_passed", "ignore_signals",
    "sleep_for_ever", "endless_output", "memory_bomb", "circular_value", "huge_value", "print_everything",
    "print_verdict", "remember_between_tests", "lying_input",
]  # fmt: skip


def test_the_weaker_mode_is_not_fooled_either(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("INFUSER_SANDBOX", "unsafe")
    known = {entry.name: entry for entry in sandbox_corpus.cheats()}
    found = sandbox_corpus.judged([known[name] for name in INTEGRITY])
    assert {name: each for name, each in found.items() if not isinstance(each, sandbox_corpus.ProgramJudgement)} == {}
    assert [name for name, each in found.items() if each.passed] == []


def test_the_weaker_mode_runs_honest_programs(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("INFUSER_SANDBOX", "unsafe")
    found = sandbox_corpus.judged(sandbox_corpus.honest()[::3])
    assert {name: each for name, each in found.items() if not isinstance(each, sandbox_corpus.ProgramJudgement)} == {}
    assert {name: each for name, each in found.items() if not each.passed} == {}


def test_running_out_of_descriptors_is_no_verdict_and_leaves_none_open():
    text = """
assert one().verdict == "correct"
limits = resource.getrlimit(resource.RLIMIT_NOFILE)
for spare in range(0, 24, 3):
    before = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (before + spare, limits[1]))
    found = one()
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    # Popen of 3.11.2 leaves some open where it runs out of them half way.
    assert len(os.listdir("/proc/self/fd")) <= before + 4 * (sys.version_info < (3, 11, 5)), spare
    print(found.verdict, found.reason)
"""
    done = python(text)
    lines = done.stdout.splitlines()
    assert lines[0].startswith("unverified sandbox canary: the sandbox did not start"), done.stderr
    assert lines[-1] == "correct all tests"
    assert {line.split()[0] for line in lines} == {"unverified", "correct"}


def test_a_sandbox_that_cannot_be_started_is_an_error_of_its_own():
    text = """
from dataclasses import replace
from infuser_core.verifiers.sandbox.cell import Cell
found = probe.find_containment()
for launcher in (("/bin/false",), ("/no/such/file",), ("/bin/echo", "nonsense")):
    try: Cell(replace(found, launcher=launcher), Program(source=""), Limits())
    except InfuserError as error: print(type(error).__name__, error.message)
"""
    done = python(text)
    assert done.stdout.splitlines()[0] == "SandboxError the sandbox did not start: no message", done.stderr
    assert done.stdout.count("SandboxError the sandbox did not start") == 3


@pytest.mark.parametrize("place", range(len(containment.find_interpreters())))
def test_killing_the_judge_ends_everything_inside(place: int):
    if containment.find_interpreters()[place].hidden_by is not None and os.geteuid() != 0:
        pytest.skip("an interpreter that cannot be read")
    text = f"""
import threading
from infuser_core.verifiers.sandbox import containment
found = probe.prove(containment.contain_with_bwrap(containment.find_interpreters()[{place}]))
source = "import os, time\\nfor _ in range(3): os.fork()\\ntime.sleep(600)"
threading.Timer(3, lambda: os.kill(os.getpid(), 9)).start()
probe.find_containment = lambda: found
run(Program(source=source), [Case()], Limits(seconds=300))
"""
    process = subprocess.Popen([sys.executable, "-c", HEAD + text], cwd=ROOT, start_new_session=True)
    inside = _inside(process.pid, 8)
    assert process.wait(30) == -signal.SIGKILL
    until = time.monotonic() + 10
    while any(Path(f"/proc/{pid}/stat").exists() for pid in inside) and time.monotonic() < until:
        time.sleep(0.05)
    assert [pid for pid in inside if Path(f"/proc/{pid}/stat").exists()] == []


def test_a_program_that_somebody_kills_runs_once_more():
    text = """
(found,) = run(Program(source="import time; time.sleep(4); print(1)"), [Case()], Limits(seconds=60))
print(found.status, found.stdout)
"""
    process = subprocess.Popen([sys.executable, "-c", HEAD + text], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    program = _asleep(process.pid)
    os.kill(program, signal.SIGKILL)
    assert process.communicate(timeout=60)[0].split() == ["returned", "1"]


def _asleep(pid: int) -> int:
    """The innermost descendant of a process, once it runs the program: nobody beyond it for a while."""
    until, since, last = time.monotonic() + 30, time.monotonic(), 0
    while time.monotonic() < until:
        innermost = max(_inside(pid, 1))
        if innermost != last:
            since, last = time.monotonic(), innermost
        if time.monotonic() - since > 1.2:
            return last
    raise AssertionError("no program started")


def _inside(pid: int, count: int) -> list[int]:
    """Descendants of a process, once there are at least so many."""
    until = time.monotonic() + 20
    found: list[int] = []
    while len(found) < count and time.monotonic() < until:
        found, waiting = [], [pid]
        while waiting:
            for path in Path(f"/proc/{waiting.pop()}/task").glob("*/children"):
                below = [int(word) for word in path.read_text().split()]
                found += below
                waiting += below
        time.sleep(0.02)
    assert len(found) >= count, found
    return found


@pytest.mark.parametrize("machine", sorted(containment.ARCHITECTURES))
def test_the_filter_names_every_call_once_and_fits(machine: str):
    content = containment.filter_program(machine)
    assert len(content) % 8 == 0
    # A pipe holds 64 KiB and the kernel takes 4,096 instructions.
    assert len(content) < 8 * 4096
    column = containment.ARCHITECTURES[machine][0]
    numbers = [pair[column] for pair in containment.DENIED.values()]
    assert len(set(numbers)) == len(numbers)


def test_an_unknown_machine_has_no_filter():
    assert containment.filter_program("riscv64") == b""


def test_what_the_sandbox_shows_of_the_host():
    own = next(each for each in containment.find_interpreters() if each.hidden_by is None)
    command = containment.contain_with_bwrap(own).command(requests=3, answers=4, disk_mb=16)
    shown = {command[place + 1] for place, word in enumerate(command) if word in ("--ro-bind", "--bind", "--dev-bind")}
    allowed = {str(own.executable), str(own.prefix / "lib"), "/usr/lib", "/usr/lib64", "/lib", "/lib64"}
    assert shown <= allowed
    assert "--bind" not in command


# Both collections as an ordinary user: what is blocked must not be blocked by root's means, nor allowed by them


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
