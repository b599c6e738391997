"""How a case ends when a program goes beyond a limit, and what is known of the cases after it."""

import contextlib
from dataclasses import replace
from pathlib import Path

import pytest
from contained import needs_sandbox

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
