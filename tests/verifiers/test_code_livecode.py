"""LiveCodeBench rows: decoded without running anything that is in them."""

import base64
import json
import pickle
import zlib
from pathlib import Path
from typing import Any

import pytest
from contained import needs_sandbox

from infuser_core.errors import DocumentError
from infuser_core.evaluation.benchmarks.parts import program_tests as livecode
from infuser_core.verifiers.parts.code_tests import judge, read_tests, store_tests

pytestmark = needs_sandbox

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


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_packed_private_tests_follow_the_public_ones(protocol: int):
    found = livecode.tests_from_livecode(row(private_test_cases=packed(json.dumps(PRIVATE), protocol)))
    assert (found["kind"], found["entry"]) == ("stdin", "")
    assert [case["stdout"] for case in found["cases"]] == ["4\n", "9\n", "0\n"]


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


def test_a_pickle_that_does_something_is_refused_and_does_nothing(tmp_path: Path):
    left = tmp_path / "left"
    for value in (Opens(left), [Opens(left)], {"a": Opens(left)}):
        with pytest.raises(DocumentError, match="abc123_a: private tests hold pickle instruction"):
            livecode.tests_from_livecode(row(private_test_cases=packed(value)))
    assert not left.exists()


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


def test_a_bomb_is_not_unpacked():
    squeeze, zeros = zlib.compressobj(1), bytes(1 << 24)
    bomb = b"".join([*(squeeze.compress(zeros) for _ in range(17)), squeeze.flush()])
    assert len(bomb) < livecode.MAX_UNPACKED // 100
    with pytest.raises(DocumentError, match=f"larger than {livecode.MAX_UNPACKED} bytes"):
        livecode.tests_from_livecode(row(private_test_cases=base64.b64encode(bomb).decode()))


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


@pytest.mark.parametrize("source", [{"metadata": '{"func_name": "pairUp"}'}, {"starter_code": STARTER}])
def test_functional_rows_call_a_method(source: dict[str, str], tmp_path: Path):
    found = livecode.tests_from_livecode(row(public_test_cases=FUNCTIONAL, private_test_cases="[]", **source))
    assert (found["kind"], found["entry"]) == ("call", "Solution.pairUp")
    assert found["cases"] == [{"args": [[1, 2], 3], "expected": [[1, 3], [2, 3]]}]
    stored = store_tests(found, tmp_path)
    assert judge(SOLUTION, read_tests(*stored)).passed


def test_functional_rows_without_a_name_are_refused():
    with pytest.raises(DocumentError, match="neither metadata nor starter code"):
        livecode.tests_from_livecode(row(public_test_cases=FUNCTIONAL, private_test_cases="[]"))


def test_a_whole_row_judges_programs(tmp_path: Path):
    stored = store_tests(livecode.tests_from_livecode(row()), tmp_path)
    tests = read_tests(*stored)
    assert judge("print(int(input()) ** 2)", tests).passed
    assert judge("print(2 * int(input()))", tests).reason == "wrong output"


def test_the_names_offered_to_solutions_hide_no_built_in():
    names: dict[str, Any] = {}
    exec(livecode.SETUP, names)
    builtins = names.pop("__builtins__")
    assert set(names) & set(builtins) == set()
    assert {"List", "Optional", "deque", "heappush", "math"} <= set(names)
