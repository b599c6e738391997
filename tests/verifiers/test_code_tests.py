"""Tests of programs: how outputs are compared, and the tests of HumanEval+ and LiveCodeBench."""

import base64
import json
import math
import pickle
import zlib
from pathlib import Path
from typing import Any

import pytest
from contained import needs_sandbox
from hypothesis import given
from test_sandbox_literals import values

from infuser_core.errors import DocumentError
from infuser_core.evaluation.benchmarks.parts import program_tests as humaneval
from infuser_core.evaluation.benchmarks.parts import program_tests as livecode
from infuser_core.verifiers.parts.code_tests import (
    CodeCase,
    CodeTests,
    is_root,
    judge,
    parse_tests,
    read_tests,
    same_output,
    same_value,
    store_tests,
)

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("found", "expected", "equal"),
    [
        (1, 1, True), (1, 2, False), (1.0, 1, True), (1, 1.0, True), (1 + 0j, 1, True), (True, 1, False),
        (1, True, False),
        (0.0, False, False), (None, None, True), (None, False, False), (0, None, False), ("1", 1, False),
        ("a", "a", True),
        ("a", b"a", False), (b"a", b"a", True), (0.1 + 0.2, 0.3, True), (0.30001, 0.3, False), (1e15 + 1, 1e15, True),
        (1e15 + 1, 10**15, False), (NAN, NAN, True), (1.0, NAN, False), (NAN, 1.0, False), (INF, INF, True),
        (INF, 1.0, False), (1.0, INF, False), (-INF, INF, False), (1e308, INF, False), (INF, 1e308, False),
        (10**400, 1.0, False),
        (1.0, 10**400, False), (10**400, 10**400, True), (complex(0, INF), 1.0, False), ([], [], True), ([], (), False),
        ((), [], False), ([1, [2]], [1, [2]], True), ([1, [2]], [1, (2,)], False), ([1], [1, 2], False),
        ([1, 2], [2, 1], False),
        ({1, 2}, {2, 1}, True), (frozenset({1}), {1}, True), ({True}, {1}, False), ({1.0}, {1}, True),
        ([1], {1}, False),
        ({(True, 1)}, {(1, 1)}, False), ({"a": 0.1 + 0.2}, {"a": 0.3}, True), ({1: "a"}, {True: "a"}, False),
        ({1: "a"}, {1.0: "a"}, True), ({1: "a"}, {1: "a", 2: "b"}, False), ({}, {}, True), ({}, [], False),
        ({"a"}, {"a": 1}, False),
    ],
)  # fmt: skip
def test_values(found: Any, expected: Any, equal: bool):
    assert same_value(found, expected) is equal


@pytest.mark.parametrize(
    ("found", "expected", "atol", "equal"),
    [(1.05, 1.0, 0.1, True), (1.2, 1.0, 0.1, False), (11, 10, 1.0, True), (12, 10, 1.0, False),
    ([1.05], [1], 0.1, True)],
)  # fmt: skip
def test_a_tolerance_of_the_problem_holds_for_integers_too(found: Any, expected: Any, atol: float, equal: bool):
    assert same_value(found, expected, atol=atol) is equal


@pytest.mark.parametrize(
    ("found", "expected"), [((1, 2), [1, 2]), ([(1,)], [[1]]), ({"a": (1,)}, {"a": [1]}), ([1], (1,))]
)
def test_tuples_equal_lists_only_where_the_problem_says_so(found: Any, expected: Any):
    assert not same_value(found, expected)
    assert same_value(found, expected, tuples_equal_lists=True)


@given(values)
def test_every_value_equals_itself(value: Any):
    assert same_value(value, value)


@pytest.mark.parametrize(
    ("found", "expected", "equal"),
    [
        ("1", "1", True), ("1\n", "1", True), ("\n 1 \n\n", "1", True), ("1 2", "1  2", True), ("1.0", "1", True),
        ("1e2", "100", True), ("a b", "a  b", False), ("a", "A", False), ("1\n2", "1 2", False),
        ("1\n\n2", "1\n2", False),
        ("1 \n2", "1\n2", True), ("0.30000000000000004", "0.3", False), ("1 x", "1.0 x", False), ("nan", "NaN", False),
        ("nan", "nan", True), ("inf", "Infinity", False), ("١", "1", False), ("1_0", "10", False), ("", "", True),
        ("", "0", False),
        ("0", "", False), ("YES", "YES", True), ("1" * 5000, "1" * 5000, True), ("1" * 5000 + ".0", "1" * 5000, True),
        ("1e9999999", "1", False), ("-0", "0", True), ("+1", "1", True), ("1 2", "1", False),
    ],
)  # fmt: skip
def test_outputs(found: str, expected: str, equal: bool):
    assert same_output(found, expected) is equal


def test_outputs_within_a_tolerance_of_the_problem():
    assert same_output("0.333333 x", "0.3333334 x", atol=1e-5) is False
    assert same_output("0.333333", "0.3333334", atol=1e-5)
    assert not same_output("0.3333", "0.3333334", atol=1e-5)


@pytest.mark.parametrize(
    ("x", "root"),
    [(2.0, True), (-2, True), (2.00001, True), (2.1, False), (0, False), (NAN, False), (INF, False), (1e300, False),
     ("2", False), (None, False), (True, False), (2 + 0j, False), ([2], False)],
)  # fmt: skip
def test_a_root_is_judged_by_what_it_does(x: Any, root: bool):
    case = CodeCase(stdin="", args=([-4, 0, 1],), expected=2.0)
    assert is_root(x, case, atol=1e-4) is root


def test_a_root_as_good_as_the_reference_is_good_enough():
    steep = CodeCase(stdin="", args=([-1e9, 1e9],), expected=1 + 1e-10)
    assert is_root(1 + 1e-10, steep, atol=1e-4)
    assert is_root(1 - 1e-11, steep, atol=1e-4)
    assert not is_root(1 + 1e-9, steep, atol=1e-4)


# HumanEval+ rows: outputs of the reference solution, run alone, or literals that are read and never run


PROMPT = """from typing import List


def helper(n):
    return n + 1


def spread(numbers: List[int]):
    '''Doc.'''
"""
ROW = {
    "task_id": "HumanEval/900",
    "prompt": PROMPT,
    "canonical_solution": "    numbers.sort()\n    return (numbers[-1] - numbers[0], {helper(n) for n in numbers})\n",
    "entry_point": "spread",
    "base_input": [[[1, 5, 3]]],
    "plus_input": [[[7]], [[10**20, -1]]],
    "atol": 0,
    "contract": "",
}
GOOD = "def spread(numbers: List[int]):\n    return max(numbers) - min(numbers), set(map(helper, numbers))\n"


def stored_tests(row: dict[str, Any], folder: Path) -> CodeTests:
    return read_tests(*store_tests(humaneval.tests_from_evalplus(row), folder))


@needs_sandbox
def test_expected_values_are_what_the_reference_returns(tmp_path: Path):
    tests = stored_tests(ROW, tmp_path)
    assert [case.args for case in tests.cases] == [([1, 5, 3],), ([7],), ([10**20, -1],)]
    assert [case.expected for case in tests.cases] == [(4, {2, 4, 6}), (0, {8}), (10**20 + 1, {10**20 + 1, 0})]
    assert (tests.program.kind, tests.program.entry) == ("call", "spread")


@needs_sandbox
def test_solutions_may_use_what_the_prompt_defines(tmp_path: Path):
    tests = stored_tests(ROW, tmp_path)
    assert judge(GOOD, tests).passed
    assert judge(GOOD.replace("return max", "return 1 + max"), tests).reason == "wrong output"


@needs_sandbox
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"canonical_solution": "    return 1 / 0\n"},
            "solution raised on input 0: ZeroDiv",
        ),
        ({"canonical_solution": "    return spread\n"}, "no plain data: function"),
        ({"base_input": "nonsense"}, "HumanEval/900"),
        ({"base_input": 7}, "not a list"),
        ({"base_input": [], "plus_input": []}, "no inputs"),
        ({"entry_point": "other"}, "reference solution raised"),
        ({"atol": "much"}, "HumanEval/900"),
    ],
)
def test_rows_of_another_shape_are_named(changes: dict[str, Any], message: str):
    with pytest.raises(DocumentError, match=message):
        humaneval.tests_from_evalplus({**ROW, **changes})


POLYNOMIAL = """def poly(c, x):
    return sum(a * x**i for i, a in enumerate(c))


def find_zero(xs: list):
    '''Doc.'''
"""
ROOTS = {
    "task_id": "HumanEval/32",
    "prompt": POLYNOMIAL,
    "canonical_solution": "    a, b = -1e3, 1e3\n    for _ in range(200):\n        m = (a + b) / 2\n"
    "        a, b = (m, b) if poly(xs, m) * poly(xs, a) > 0 else (a, m)\n    return a\n",
    "entry_point": "find_zero",
    "base_input": [[[-6, 11, -6, 1]]],
    "plus_input": [[[1, 2]]],
    "atol": 0,
}


@needs_sandbox
def test_any_root_is_right_where_a_root_is_asked_for(tmp_path: Path):
    tests = stored_tests(ROOTS, tmp_path)
    assert tests.compare == "polynomial_root"
    for root in (1, 2.0, 3.000001):
        assert judge(f"def find_zero(xs): return {root} if len(xs) == 4 else -0.5", tests).passed
    assert not judge("def find_zero(xs): return 1.5", tests).passed
    assert not judge("def find_zero(xs): return float('nan')", tests).passed


HF = """
import numpy as np

def is_floats(x):
    return isinstance(x, float)

def assertion(out, exp, atol):
    assert out == exp

def check(candidate):
    inputs = [[[1, 5, 3]], [[7]]]
    results = [(4, {2, 4, 6}), (0, {8})]
    for i, (inp, exp) in enumerate(zip(inputs, results)):
        assertion(candidate(*inp), exp, 0)
"""


def hf(test: str = HF) -> dict[str, Any]:
    kept = ("task_id", "prompt", "canonical_solution", "entry_point")
    return {**{name: ROW[name] for name in kept}, "test": test}


@needs_sandbox
def test_the_other_layout_gives_the_same_tests():
    tests = parse_tests(humaneval.tests_from_hf(hf()))
    assert [case.expected for case in tests.cases] == [(4, {2, 4, 6}), (0, {8})]
    assert judge(GOOD, tests).passed


@needs_sandbox
def test_numbers_that_are_written_as_names():
    test = HF.replace("[(4, {2, 4, 6}), (0, {8})]", "[inf, -inf]").replace("exp, 0)", "exp, 1e-06)")
    tests = parse_tests(humaneval.tests_from_hf(hf(test)))
    assert [case.expected for case in tests.cases] == [float("inf"), -float("inf")]
    assert tests.atol == 1e-06


@needs_sandbox
def test_a_row_without_results_runs_its_reference():
    test = "\n".join(line for line in HF.splitlines() if "results =" not in line)
    assert humaneval.tests_from_hf(hf(test)) == humaneval.tests_from_hf(hf())


@needs_sandbox
@pytest.mark.parametrize(
    "test",
    [
        HF.replace("[[[1, 5, 3]], [[7]]]", "[[[1]], __import__('os').listdir()]"),
        HF.replace("[[[1, 5, 3]], [[7]]]", "[[[n]] for n in range(3)]"),
        HF.replace("[(4, {2, 4, 6}), (0, {8})]", "[open('/etc/passwd').read(), 1]"),
        HF.replace("[(4, {2, 4, 6}), (0, {8})]", "[(4, {2, 4, 6})]"),
        HF.replace("[[[1, 5, 3]], [[7]]]", "{}"),
        HF.replace("def check(", "def other("),
        HF.replace("inputs =", "others ="),
        "def check(candidate:",
        "",
        "(" * 5000,
    ],
)
def test_what_is_no_literal_is_refused(test: str):
    with pytest.raises(DocumentError, match="HumanEval/900"):
        humaneval.tests_from_hf(hf(test))


# LiveCodeBench rows: decoded without running anything that is in them


PUBLIC = [{"input": "2\n", "output": "4\n", "testtype": "stdin"}]
PRIVATE = [
    {"input": "3\n", "output": "9\n", "testtype": "stdin"},
    {"input": "0\n", "output": "0\n", "testtype": "stdin"},
]


def packed(value: object, protocol: int = 4) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(value, protocol))).decode()


def row(**changes: Any) -> dict[str, Any]:
    base = {
        "question_id": "abc123_a",
        "public_test_cases": json.dumps(PUBLIC),
        "private_test_cases": packed(json.dumps(PRIVATE)),
        "metadata": "{}",
        "starter_code": "",
    }
    return {**base, **changes}


@needs_sandbox
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_packed_private_tests_follow_the_public_ones(protocol: int):
    found = livecode.tests_from_livecode(row(private_test_cases=packed(json.dumps(PRIVATE), protocol)))
    assert (found["kind"], found["entry"]) == ("stdin", "")
    assert [case["stdout"] for case in found["cases"]] == ["4\n", "9\n", "0\n"]


@needs_sandbox
@pytest.mark.parametrize("private", [json.dumps(PRIVATE), PRIVATE, "[]", []])
def test_plain_private_tests(private: object):
    found = livecode.tests_from_livecode(row(private_test_cases=private))
    assert len(found["cases"]) == 1 + (len(PRIVATE) if len(private) > 2 or private == PRIVATE else 0)


class Opens:
    """A pickle that would leave a file behind."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (open, (str(self.path), "w"))


@needs_sandbox
def test_a_pickle_that_does_something_is_refused_and_does_nothing(tmp_path: Path):
    left = tmp_path / "left"
    for value in (Opens(left), [Opens(left)], {"a": Opens(left)}):
        with pytest.raises(DocumentError, match="abc123_a: private tests hold pickle instruction"):
            livecode.tests_from_livecode(row(private_test_cases=packed(value)))
    assert not left.exists()


@needs_sandbox
@pytest.mark.parametrize(
    "content",
    [
        b"cos\nsystem\n(S'true'\ntR.", b"\x80\x04\x8c\x02os\x8c\x06system\x93.", b"Ppersistent\n.",
        b"\x80\x04X\xff\xff\xff\xffx.",
        b"]" * 1000 + b".", b"(" * 100, b"", b"\x80\x04.", b"V1\n" + b"2" * 100 + b".", b"\x80\x02}q\x00.", b"i" * 10,
        b"\x80\x05\x8d\xff\xff\xff\xff\xff\xff\xff\x7fx.", b"\x80\x04\x8c\x01xp4000000000\n.",
    ],
)  # fmt: skip
def test_hostile_pickles_are_refused(content: bytes):
    with pytest.raises(DocumentError):
        livecode.tests_from_livecode(row(private_test_cases=base64.b64encode(zlib.compress(content)).decode()))


@needs_sandbox
def test_a_bomb_is_not_unpacked():
    squeeze, zeros = zlib.compressobj(1), bytes(1 << 24)
    bomb = b"".join([*(squeeze.compress(zeros) for _ in range(17)), squeeze.flush()])
    assert len(bomb) < livecode.MAX_UNPACKED // 100
    with pytest.raises(DocumentError, match=f"larger than {livecode.MAX_UNPACKED} bytes"):
        livecode.tests_from_livecode(row(private_test_cases=base64.b64encode(bomb).decode()))


@needs_sandbox
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"private_test_cases": "no base64!"}, "neither JSON nor base64"),
        ({"private_test_cases": base64.b64encode(b"no zlib").decode()}, "do not inflate"),
        ({"private_test_cases": base64.b64encode(zlib.compress(pickle.dumps("[]"))[:-4]).decode()}, "cut off"),
        ({"private_test_cases": packed("no json")}, "Expecting value"),
        ({"private_test_cases": packed('{"a": 1}')}, "not a list"),
        ({"private_test_cases": packed(7)}, "pickle instruction"),
        ({"private_test_cases": "[" * 100_000}, "abc123_a"),
        ({"private_test_cases": 7}, "not a list"),
        ({"public_test_cases": "[]", "private_test_cases": "[]"}, "no test cases"),
        ({"public_test_cases": "[1]"}, "abc123_a"),
        ({"public_test_cases": '[{"input": "1"}]'}, "no field 'output'"),
        (
            {"metadata": '{"func_name": "f"}', "public_test_cases": json.dumps([{"input": "x", "output": "1"}])},
            "Expecting",
        ),
    ],
)
def test_damaged_rows_are_named(changes: dict[str, Any], message: str):
    with pytest.raises(DocumentError, match=message):
        livecode.tests_from_livecode(row(**changes))


FUNCTIONAL = [{"input": "[1, 2]\n3", "output": "[[1, 3], [2, 3]]", "testtype": "functional"}]
STARTER = "class Solution:\n    def pairUp(self, numbers: List[int], other: int) -> List[List[int]]:\n        "
SOLUTION = STARTER + "seen = defaultdict(int)\n        return [(number, other) for number in sorted(numbers)]\n"


@needs_sandbox
@pytest.mark.parametrize("source", [{"metadata": '{"func_name": "pairUp"}'}, {"starter_code": STARTER}])
def test_functional_rows_call_a_method(source: dict[str, str], tmp_path: Path):
    found = livecode.tests_from_livecode(row(public_test_cases=FUNCTIONAL, private_test_cases="[]", **source))
    assert (found["kind"], found["entry"]) == ("call", "Solution.pairUp")
    assert found["cases"] == [{"args": [[1, 2], 3], "expected": [[1, 3], [2, 3]]}]
    stored = store_tests(found, tmp_path)
    assert judge(SOLUTION, read_tests(*stored)).passed


@needs_sandbox
def test_functional_rows_without_a_name_are_refused():
    with pytest.raises(DocumentError, match="neither metadata nor starter code"):
        livecode.tests_from_livecode(row(public_test_cases=FUNCTIONAL, private_test_cases="[]"))


@needs_sandbox
def test_a_whole_row_judges_programs(tmp_path: Path):
    stored = store_tests(livecode.tests_from_livecode(row()), tmp_path)
    tests = read_tests(*stored)
    assert judge("print(int(input()) ** 2)", tests).passed
    assert judge("print(2 * int(input()))", tests).reason == "wrong output"


@needs_sandbox
def test_the_names_offered_to_solutions_hide_no_built_in():
    names: dict[str, Any] = {}
    exec(livecode.SETUP, names)
    builtins = names.pop("__builtins__")
    assert set(names) & set(builtins) == set()
    assert {"List", "Optional", "deque", "heappush", "math"} <= set(names)
