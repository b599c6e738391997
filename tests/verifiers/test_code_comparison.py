"""When a program's value or output counts as the expected one."""

import math
from typing import Any

import pytest
from hypothesis import given
from test_sandbox_literals import values

from infuser_core.verifiers.parts.code_tests import CodeCase, is_root, same_output, same_value

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
