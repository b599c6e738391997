"""Programs in the sandbox: attacks, honest programs, limits, scientific packages."""

import contextlib
import gc
import os
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest
import sandbox_corpus
from contained import needs_sandbox
from sandbox_corpus import ProgramJudgement

from infuser_core.evaluation.benchmarks.parts import program_tests
from infuser_core.settings import sandbox_mode
from infuser_core.verifiers.parts.code_tests import judge, parse_tests
from infuser_core.verifiers.sandbox.processes import Tree
from infuser_core.verifiers.sandbox.program import Case, CaseOutcome, Limits, Program, Status
from infuser_core.verifiers.sandbox.run import run

pytestmark = needs_sandbox
SHORT = Limits(seconds=0.4, memory_mb=128, output_bytes=1 << 16, value_bytes=1 << 16, disk_mb=2)
ENOUGH = replace(SHORT, seconds=20.0)
"""Where another limit or the program's own end comes first, on a busy machine too."""
FAMILY = """
import os
for _ in range(6):
    if not os.fork():
        break
held = bytearray(b"x" * (40 << 20))
while True:
    pass
"""
MANY_FILES = """
import os
for number in range(10**9):
    os.close(os.open(f"f{number}", os.O_CREAT))
"""


def whole(source: str, *texts: str, limits: Limits = SHORT) -> tuple[CaseOutcome, ...]:
    return run(Program(source=source), [Case(stdin=text) for text in texts or ("",)], limits)


def called(source: str, *arguments: object, limits: Limits = SHORT) -> tuple[CaseOutcome, ...]:
    return run(Program(source=source, kind="call", entry="f"), [Case(args=(a,)) for a in arguments], limits)


@pytest.mark.parametrize(
    ("source", "status"),
    [
        ("print(input())", Status.RAISED),
        ("while True: pass", Status.TIMEOUT),
        (FAMILY, Status.MEMORY),
        ("b = b'x' * (3 << 30)", Status.MEMORY),
        ("while True: print('x' * 1000)", Status.OUTPUT_LIMIT),
        ("print('x' * 60000)", Status.RETURNED),
        ("open('f', 'wb').write(b'x' * (3 << 20))", Status.RAISED),
        ("open('f', 'wb').write(b'x' * (1 << 20))", Status.RETURNED),
        ("import os\nos.kill(os.getpid(), 9)", Status.RAISED),
        ("raise SystemExit(7)", Status.RETURNED),
        ("raise SystemExit('text')", Status.RETURNED),
        ("syntax error", Status.RAISED),
        ("x = '\0'", Status.RAISED),
        ("x = '\ud800'", Status.RAISED),
        ("", Status.RETURNED),
    ],
)  # fmt: skip
def test_how_a_program_ends(source: str, status: Status):
    assert whole(source, limits=SHORT if status == Status.TIMEOUT else ENOUGH)[0].status == status


def test_files_without_content_count_as_memory():
    (outcome,) = whole(MANY_FILES, limits=Limits(seconds=20.0, memory_mb=48))
    assert outcome.status == Status.MEMORY


def test_every_whole_program_is_a_process_of_its_own():
    source = "import os\nprint(os.listdir(), os.getpid())\nopen('left', 'w').close()\nif input() == 'die': 1 / 0"
    first, dead, last = whole(source, "x", "die", "x")
    assert (first.status, dead.status, last.status) == (Status.RETURNED, Status.RAISED, Status.RETURNED)
    assert first.stdout == last.stdout
    assert dead.detail == "ZeroDivisionError: division by zero"


def test_calls_after_a_death_are_answered_by_a_new_process():
    source = "calls = 0\ndef f(n):\n    global calls\n    calls += 1\n    return (calls, 1 // n)"
    outcomes = called(source, 1, 0, 1)
    assert [each.status for each in outcomes] == [Status.RETURNED, Status.RAISED, Status.RETURNED]
    assert [outcomes[0].value, outcomes[2].value] == [(1, 1), (1, 1)]


def test_a_program_that_does_not_load_fails_every_call():
    outcomes = called("1 / 0", 1, 2, 3)
    assert [each.status for each in outcomes] == [Status.RAISED] * 3
    assert {each.detail for each in outcomes} == {"ZeroDivisionError: division by zero"}


def test_a_missing_function_is_named():
    (outcome,) = called("def g(n): return n", 1)
    assert outcome.status == Status.RAISED
    assert "'f'" in outcome.detail


def test_the_clock_of_all_cases_together():
    # A second of room on a busy machine, for each case and for the first two together.
    limits = Limits(seconds=1.6, total_seconds=2.2)
    outcomes = called("import time\ndef f(n):\n    time.sleep(n)\n    return n", 0.6, 0.6, 1.4, 0.0, limits=limits)
    assert [each.status for each in outcomes[:2]] == [Status.RETURNED] * 2
    assert [each.status for each in outcomes[2:]] == [Status.TIMEOUT] * 2


def test_stopping_leaves_the_other_cases_missing():
    program = Program(source="def f(n): return n", kind="call", entry="f")
    found = run(program, [Case(args=(n,)) for n in range(5)], SHORT, stop=lambda number, outcome: outcome.value == 2)
    assert [each.status for each in found] == [Status.RETURNED] * 3 + [Status.MISSING] * 2


def test_the_environment_is_the_same_for_every_run():
    source = "import os\nprint(sorted(os.environ), hash('text'), os.getcwd(), os.getuid(), os.uname().nodename)"
    first, second = whole(source, "", "")
    assert first.stdout == second.stdout
    assert first.stdout.startswith("['LC_CTYPE', 'PWD', 'PYTHONHASHSEED'] ")
    assert first.stdout.endswith(" /box 65534 box\n")


def test_large_input_that_is_never_read_blocks_nothing():
    limits = Limits(seconds=10.0)
    (outcome,) = whole("print('x' * 500_000)", "y" * 5_000_000, limits=limits)
    assert (outcome.status, len(outcome.stdout)) == (Status.RETURNED, 500_001)


def test_input_and_output_flow_at_the_same_time():
    limits = Limits(seconds=10.0)
    source = "import sys\nfor line in sys.stdin: print(line * 2, end='')"
    text = "line\n" * 200_000
    (outcome,) = whole(source, text, limits=limits)
    assert outcome.stdout == "line\nline\n" * 200_000


def test_a_host_with_more_than_a_thousand_open_files_ends_its_sandboxes():
    with contextlib.ExitStack() as held:
        for _ in range(1100):
            held.enter_context(Path("/dev/null").open())
        assert whole("while True: pass")[0].status == Status.TIMEOUT


# Programs that try to be called right without being right, to get out, or to do damage


FOLDERS = ["/", "/tmp", "/var/tmp", "/dev", "/dev/shm", "/run", "/etc", "/home", "/root", "/usr/lib", str(Path.cwd())]


def escaped_files() -> list[str]:
    """What the attacks would have left outside."""
    return [str(path) for folder in map(Path, FOLDERS) if folder.is_dir() for path in folder.glob("infuser_escape*")]


def sandboxes(after: float) -> set[int]:
    """Processes of sandboxes that started after a time since boot, whoever started them."""
    found = set()
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if folder.name.isdigit() and b"posix.read(line" in (folder / "cmdline").read_bytes():
                ticks = int((folder / "stat").read_text().rpartition(")")[2].split()[19])
                if ticks / os.sysconf("SC_CLK_TCK") >= after:
                    found.add(int(folder.name))
    return found


def staying(after: float, seconds: float = 20.0) -> set[int]:
    """Sandboxes that stay: those of other tests, which may run beside this one, come and go."""
    found = sandboxes(after)
    until = time.monotonic() + seconds
    while found and time.monotonic() < until:
        time.sleep(0.1)
        found &= sandboxes(after)
    return found


def descriptors() -> set[str]:
    """Pipes, files and handles of ended processes that this process holds open.

    Other threads may have sockets, and handles of processes of their own that live.
    """
    found = set()
    for link in Path("/proc/self/fd").iterdir():
        try:
            name = str(link.readlink())
            if name == "anon_inode:[pidfd]":
                of = Path("/proc/self/fdinfo", link.name).read_text().rpartition("Pid:")[2].split()[0]
                name = f"pidfd {link.name} of an ended process" if of == "-1" else "socket: of a living process"
            found.add(name)
        except OSError:  # the folder's own descriptor, and what another thread has just closed
            continue
    return {name for name in found if not name.startswith(("socket:", "anon_inode:[event"))}


def leaked(before: set[str], seconds: float = 30.0) -> set[str]:
    """What is open since then and stays so."""
    until = time.monotonic() + seconds
    while (new := descriptors() - before) and time.monotonic() < until:
        gc.collect()
        time.sleep(0.1)
    return new


def test_the_collection_is_large_and_every_attack_says_what_it_tries():
    assert len(sandbox_corpus.CHEATS) >= 40
    assert [path.name for path in sandbox_corpus.CHEATS if not path.read_text().startswith("# Tries: ")] == []


def test_no_attack_is_called_right_none_gets_out_and_the_host_is_unchanged():
    began, files = time.clock_gettime(time.CLOCK_BOOTTIME), escaped_files()
    with sandbox_corpus.bait():
        before = descriptors()
        found = sandbox_corpus.judged(sandbox_corpus.cheats())
        assert leaked(before) == set()
    judgements = {name: each for name, each in found.items() if isinstance(each, ProgramJudgement)}
    assert {name: each for name, each in found.items() if name not in judgements} == {}
    assert [name for name, each in judgements.items() if each.passed] == []
    # An attack that finds itself outside raises this error, and does nothing else that raises it.
    assert {name: each.detail for name, each in judgements.items() if "SystemError" in each.detail} == {}
    assert sandbox_mode() == "bwrap"
    assert escaped_files() == files
    assert staying(began) == set()


def test_a_tree_that_has_ended_adopts_no_process():
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as ended, subprocess.Popen(["sleep", "60"]) as other:
        tree = Tree(ended)
        assert tree.end()
        before = descriptors()
        tree.adopt(other.pid)
        other.kill()
        other.wait()
        assert descriptors() - before == set()


# Programs that do what they are asked, in all the ways that programs do


def test_the_collection_is_large_and_every_program_says_what_it_shows():
    assert len(sandbox_corpus.HONEST) >= 40
    assert [path.name for path in sandbox_corpus.HONEST if not path.read_text().startswith("# Shows: ")] == []


def test_no_honest_program_is_rejected():
    found = sandbox_corpus.judged(sandbox_corpus.honest())
    assert {
        name: each for name, each in found.items() if not isinstance(each, ProgramJudgement) or not each.passed
    } == {}


def test_an_honest_program_with_one_wrong_expectation_is_wrong():
    # Shows that the acceptances above are not for free.
    entries = {entry.name: entry for entry in sandbox_corpus.honest()}
    swapped = [
        sandbox_corpus.Entry(name=name, source=entries[name].source, tests=entries[other].tests)
        for name, other in (
            ("plain_function", "many_calls"),
            ("fast_input", "flushed_output"),
            ("text_output", "threads"),
        )
    ]
    assert [each.passed for each in sandbox_corpus.judged(swapped).values()] == [False] * 3


# Scientific packages inside the sandbox: there when asked for, read-only, and nothing beside them


def outcome(source: str, *, scientific: bool = True, stdin: str = "") -> CaseOutcome:
    program = Program(source=source, scientific=scientific)
    return run(program, [Case(stdin=stdin)], Limits(seconds=20.0))[0]


def test_numpy_works_where_it_is_asked_for_and_is_absent_elsewhere():
    source = "import numpy as np\nprint((np.eye(3) @ np.arange(9).reshape(3, 3)).sum())"
    assert outcome(source).stdout == "36.0\n"
    assert "No module named 'numpy'" in outcome(source, scientific=False).detail


def test_nothing_else_of_the_environment_is_shown():
    assert "No module named 'sympy'" in outcome("import sympy").detail
    seen = outcome("import os\nprint(*sorted(os.listdir('/packages')))").stdout.split()
    assert "numpy" in seen and set(seen) <= {"numpy", "numpy.libs", "sortedcontainers"}
    for source in ("open('/packages/numpy/x', 'w')", "open('/packages/x', 'w')", "import os\nos.remove('/packages')"):
        assert outcome(source).status == Status.RAISED


def test_limits_hold_for_arrays():
    found = outcome("import numpy as np\nx = [np.ones(1 << 24) for _ in range(64)]\nprint(len(x))")
    assert found.status in (Status.MEMORY, Status.RAISED) and found.stdout == ""


def test_contest_tests_allow_numpy_and_others_do_not():
    row = {
        "question_id": "q", "public_test_cases": '[{"input": "3", "output": "3", "testtype": "stdin"}]',
        "private_test_cases": "[]", "metadata": "{}", "starter_code": "",
    }  # fmt: skip
    tests = program_tests.tests_from_livecode(row)
    source = "import numpy as np\nprint(np.arange(int(input())).sum())"
    assert judge(source, parse_tests({**tests, "seconds": 20})).passed
    assert not judge(source, parse_tests({**tests, "seconds": 20, "scientific": False})).passed
