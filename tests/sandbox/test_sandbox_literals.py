"""Plain data survives the way out of the sandbox exactly; anything else is refused on either side."""

import json
import math
import sys
from collections import Counter, OrderedDict, defaultdict
from enum import IntEnum
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infuser_core.verifiers.parts.code_tests import same_value
from infuser_core.verifiers.sandbox.literals import decode, encode

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.complex_numbers() | st.text() | st.binary()
hashable = st.recursive(scalars, lambda parts: st.tuples(parts, parts) | st.frozensets(parts, max_size=4), max_leaves=4)
values = st.recursive(
    hashable | st.sets(hashable, max_size=4),
    lambda parts: st.lists(parts) | st.tuples(parts, parts) | st.dictionaries(hashable, parts, max_size=4),
    max_leaves=8,
)


def back(value: Any) -> Any:
    return decode(json.loads(encode(value)))


@given(values)
def test_what_goes_in_comes_out(value: Any):
    found = back(value)
    assert type(found) is type(value)
    assert same_value(found, value)


@given(values)
def test_the_text_is_one_line_of_ascii(value: Any):
    text = encode(value)
    assert text.isascii()
    assert "\n" not in text


@pytest.mark.parametrize(
    "value",
    [1 << 20_000, -(1 << 20_000), 2**53, -(2**53), 2**53 - 1, True, False, 0, -0.0, math.inf],
    ids=lambda value: f"{type(value).__name__} of {len(hex(value)) if type(value) is int else value}",
)
def test_numbers_of_every_size(value: Any):
    found = back(value)
    assert type(found) is type(value)
    assert found == value
    assert math.copysign(1, found) == math.copysign(1, value) if isinstance(value, float) else True


def test_subclasses_arrive_as_their_base():
    class Level(IntEnum):
        HIGH = 3

    assert back([Counter("aab"), OrderedDict(a=1), defaultdict(list, x=[1]), Level.HIGH]) == [
        {"a": 2, "b": 1},
        {"a": 1},
        {"x": [1]},
        3,
    ]
    assert type(back(Level.HIGH)) is int


def test_subclasses_cannot_answer_for_their_base():
    class Other(list[int]):
        def __iter__(self) -> Any:
            return iter([9, 9, 9])

        def __len__(self) -> int:
            return 7

    class Text(str):
        def isascii(self) -> bool:
            return True

        def __str__(self) -> str:
            return "other"

    assert back(Other([1, 2])) == [1, 2]
    assert back(Text('quoted" \n')) == 'quoted" \n'


@pytest.mark.parametrize("value", [object(), range(3), (n for n in ()), len, sys, Ellipsis, type, [object()], {1: sys}])
def test_what_is_no_plain_data_is_refused_by_name(value: Any):
    with pytest.raises(TypeError, match="no plain data: "):
        encode(value)


@pytest.mark.parametrize(
    "text",
    [
        "1.5", "{}", '{"a": 1}', "[]", "[1]", "[[]]", '["x", "1"]', '["i"]', '["i", 1]', '["i", "1", "2"]',
        '["i", "zz"]',
        '["f", "one"]', '["f", "0x1p99999"]', '["c", "0x1p0"]', '["u", "abc"]', '["u", "ff"]', '["b", "0"]',
        '["s", ["l"]]',
        '["d", 1]', '["d", ["l"]]', '["d", [1, 2, 3]]', '["d", [["l"], 1]]', '["z", ["d"]]', '["l", 0.5]',
        '["l", {"a": 1}]',
        '[null]', '[["l"]]', '["d", [1]]',
    ],
)  # fmt: skip
def test_anything_else_is_refused_on_the_way_in(text: str):
    with pytest.raises(ValueError):
        decode(json.loads(text))


@pytest.mark.parametrize(
    ("value", "plain"),
    [(np.int64(-3), -3), (np.uint8(7), 7), (np.uint64(2**64 - 1), 2**64 - 1), (np.float32(0.5), 0.5),
     (np.float64(0.1), 0.1), (np.bool_(True), True), (np.complex64(1 + 2j), 1 + 2j), (np.str_("a"), "a"),
     ({np.int64(1): [np.bool_(False)]}, {1: [False]}), (tuple(np.arange(2)), (0, 1))],
)  # fmt: skip
def test_scalars_of_numpy_are_the_python_values_that_they_equal(value: Any, plain: Any):
    found = back(value)
    assert repr(found) == repr(plain)


@pytest.mark.parametrize("value", [np.arange(2), np.zeros(1), np.longdouble(1), np.datetime64("2020-01-01")])
def test_arrays_and_what_equals_no_python_value_are_no_plain_data(value: Any):
    with pytest.raises(TypeError, match="no plain data"):
        encode(value)
