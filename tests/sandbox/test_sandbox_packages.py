"""Scientific packages inside the sandbox: there when asked for, read-only, and nothing beside them."""

from contained import needs_sandbox

from infuser_core.evaluation.benchmarks.parts import program_tests
from infuser_core.verifiers.parts.code_tests import judge, parse_tests
from infuser_core.verifiers.sandbox.program import Case, CaseOutcome, Limits, Program, Status
from infuser_core.verifiers.sandbox.run import run

pytestmark = needs_sandbox


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
