"""HumanEval+ rows: outputs of the reference solution, run alone, or literals that are read and never run."""

from pathlib import Path
from typing import Any

import pytest
from contained import needs_sandbox

from infuser_core.errors import DocumentError
from infuser_core.evaluation.benchmarks.parts import program_tests as humaneval
from infuser_core.verifiers.parts.code_tests import CodeTests, judge, parse_tests, read_tests, store_tests

pytestmark = needs_sandbox

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


def test_expected_values_are_what_the_reference_returns(tmp_path: Path):
    tests = stored_tests(ROW, tmp_path)
    assert [case.args for case in tests.cases] == [([1, 5, 3],), ([7],), ([10**20, -1],)]
    assert [case.expected for case in tests.cases] == [(4, {2, 4, 6}), (0, {8}), (10**20 + 1, {10**20 + 1, 0})]
    assert (tests.program.kind, tests.program.entry) == ("call", "spread")


def test_solutions_may_use_what_the_prompt_defines(tmp_path: Path):
    tests = stored_tests(ROW, tmp_path)
    assert judge(GOOD, tests).passed
    assert judge(GOOD.replace("return max", "return 1 + max"), tests).reason == "wrong output"


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


def test_the_other_layout_gives_the_same_tests():
    tests = parse_tests(humaneval.tests_from_hf(hf()))
    assert [case.expected for case in tests.cases] == [(4, {2, 4, 6}), (0, {8})]
    assert judge(GOOD, tests).passed


def test_numbers_that_are_written_as_names():
    test = HF.replace("[(4, {2, 4, 6}), (0, {8})]", "[inf, -inf]").replace("exp, 0)", "exp, 1e-06)")
    tests = parse_tests(humaneval.tests_from_hf(hf(test)))
    assert [case.expected for case in tests.cases] == [float("inf"), -float("inf")]
    assert tests.atol == 1e-06


def test_a_row_without_results_runs_its_reference():
    test = "\n".join(line for line in HF.splitlines() if "results =" not in line)
    assert humaneval.tests_from_hf(hf(test)) == humaneval.tests_from_hf(hf())


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
