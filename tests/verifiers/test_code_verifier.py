"""The code verifier: responses, tests in files, verdicts with their reasons."""

from pathlib import Path
from typing import Any

import pytest
from contained import needs_sandbox

from infuser_core.errors import DocumentError
from infuser_core.schemas import Question, Verdict
from infuser_core.verifiers import code
from infuser_core.verifiers.parts import code_tests
from infuser_core.verifiers.parts.batch import Job, check_all
from infuser_core.verifiers.parts.grading import Finding, Grading, as_text

pytestmark = needs_sandbox

ECHO = {"kind": "stdin", "cases": [{"stdin": "a\n", "stdout": "A"}, {"stdin": "b\n", "stdout": "B"}], "seconds": 2}
DOUBLE = {"kind": "call", "entry": "double", "cases": [{"args": [n], "expected": 2 * n} for n in range(5)]}
RIGHT = "\\boxed{\n```python\nprint(input().upper())\n```\n}"


def question(stored: tuple[Path, str] | None, *, relative_to: Path | None = None, digest: str = "") -> Question:
    grading = ""
    if stored is not None:
        path = stored[0].relative_to(relative_to) if relative_to else stored[0]
        grading = as_text(Grading(tests=str(path), tests_sha256=digest or stored[1]))
    return Question(
        question_id="q", text="?", choices=[], answer="", verifier="code", domain="", subdomain="", grading=grading,
    )  # fmt: skip


def verdict(found: Finding) -> tuple[Verdict, str]:
    return found.verdict, found.reason


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("print(input().upper())", (Verdict.CORRECT, "all tests")),
        ("print('A')", (Verdict.WRONG, "wrong output")),
        ("print(input().upper(), 1)", (Verdict.WRONG, "wrong output")),
        ("1 / 0", (Verdict.WRONG, "raised an exception")),
        ("print(", (Verdict.WRONG, "raised an exception")),
        ("import time; time.sleep(9)", (Verdict.WRONG, "time limit")),
        ("import os; os._exit(0)", (Verdict.WRONG, "wrong output")),
        ("while True: print('A' * 9999)", (Verdict.WRONG, "output limit")),
    ],
)
def test_verdicts_of_whole_programs(tmp_path: Path, program: str, expected: tuple[Verdict, str]):
    asked = question(code_tests.store_tests(ECHO, tmp_path))
    found = code.check(f"\\boxed{{\n```python\n{program}\n```\n}}", asked)
    assert verdict(found) == expected
    assert found.extracted == program + "\n"


def test_a_response_without_a_program_is_no_answer_and_nothing_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("INFUSER_SANDBOX", "no such mode")
    asked = question(code_tests.store_tests(ECHO, tmp_path))
    assert verdict(code.check("print(input().upper())", asked)) == (Verdict.NO_ANSWER, "no box")


def test_tests_lie_below_the_data_folder_and_are_named_by_their_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("INFUSER_DATA", str(tmp_path))
    stored = code_tests.store_tests(ECHO, tmp_path / "code")
    assert code.check(RIGHT, question(stored, relative_to=tmp_path)).verdict == Verdict.CORRECT
    other = code.check(RIGHT, question(stored, relative_to=tmp_path, digest="0" * 64))
    assert other.verdict == Verdict.UNVERIFIED
    assert f"digest {stored[1][:16]}, not 0000000000000000" in other.reason
    stored[0].unlink()
    code._cached_tests.cache_clear()
    assert "No such file" in code.check(RIGHT, question(stored)).reason


def test_a_question_without_tests_cannot_be_verified():
    assert verdict(code.check(RIGHT, question(None))) == (Verdict.UNVERIFIED, "question without tests")


def test_many_jobs_keep_their_order(tmp_path: Path):
    echo, double = (question(code_tests.store_tests(tests, tmp_path)) for tests in (ECHO, DOUBLE))
    twice = "\\boxed{\n```python\ndef double(n):\n    return n + n\n```\n}"
    jobs = [Job(response=r, question=q) for r, q in [(RIGHT, echo), (twice, double), ("", echo), (RIGHT, double)] * 3]
    found = [each.verdict for each in check_all(jobs)]
    assert found == [Verdict.CORRECT, Verdict.CORRECT, Verdict.NO_ANSWER, Verdict.WRONG] * 3


@pytest.mark.parametrize(
    ("solution", "tests", "expected"),
    [
        ("print(int(input()) + 1)", [{"stdin": "1", "stdout": "2"}], Verdict.CORRECT),
        ("print(int(input()) + 1)", [{"stdin": "1", "stdout": "2"}, {"stdin": "1", "stdout": "3"}], Verdict.WRONG),
        ("def f(a, b): return [a, b]", [{"call": "f", "args": [1, 2], "expected": [1, 2]}], Verdict.CORRECT),
        ("def f(a, b): return (a, b)", [{"call": "f", "args": [1, 2], "expected": [1, 2]}], Verdict.CORRECT),
        ("def f(n): return n", [{"call": "f", "args": [1], "expected": True}], Verdict.WRONG),
        ("def f(n): return n", [{"call": "g", "args": [1], "expected": 1}], Verdict.WRONG),
        ("def f(): return 1\ndef g(): return 2", [{"call": "f", "args": [], "expected": 1}, {"call": "g", "args": [],
         "expected": 2}], Verdict.CORRECT),
        ("def f(): return 1\ndef g(): return 2", [{"call": "f", "args": [], "expected": 1}, {"call": "g", "args": [],
         "expected": 1}], Verdict.WRONG),
        ("print(1)\ndef f(): return 1", [{"stdin": "", "stdout": "1"}, {"call": "f", "args": [], "expected": 1}],
         Verdict.CORRECT),
        ("", [{"stdin": "", "stdout": ""}], Verdict.NO_ANSWER),
        ("import time\ntime.sleep(5)", [{"stdin": "", "stdout": ""}], Verdict.WRONG),
    ],
)  # fmt: skip
def test_bare_solutions(solution: str, tests: list[dict[str, Any]], expected: Verdict):
    assert code.verify_solution(solution, tests, seconds=1.0).verdict == expected


@pytest.mark.parametrize("tests", [[], [{}], ["x"], [{"stdin": "1"}], [{"call": "f", "args": 1, "expected": 1}],
                                   [{"call": "f(", "args": [], "expected": 1}], [{"stdin": "", "stdout": "",
                                   "call": "f"}],
                                   [{"stdin": 1, "stdout": "1"}], [{"call": "f", "args": []}]])  # fmt: skip
def test_bare_solutions_need_tests_of_the_documented_shape(tests: list[Any]):
    with pytest.raises(DocumentError, match="tests: "):
        code.verify_solution("print(1)", tests)


def test_stored_tests_are_one_file_per_content(tmp_path: Path):
    first, again = code_tests.store_tests(DOUBLE, tmp_path), code_tests.store_tests(dict(DOUBLE), tmp_path)
    assert first == again
    assert [path.name for path in tmp_path.iterdir()] == [first[0].name]
    read = code_tests.read_tests(*first)
    assert [case.expected for case in read.cases] == [0, 2, 4, 6, 8]


def test_large_tests_are_compressed_to_the_same_bytes_every_time(tmp_path: Path):
    large = {"kind": "stdin", "cases": [{"stdin": "x" * 100_000, "stdout": "y"}]}
    first, again = (code_tests.store_tests(large, tmp_path / name) for name in ("one", "two"))
    assert first[0].suffixes == [".json", ".gz"]
    assert (first[1], first[0].stat().st_size < 1000) == (again[1], True)
    assert code_tests.read_tests(*first).cases[0].stdin == "x" * 100_000


def test_tagged_tests_hold_what_json_cannot(tmp_path: Path):
    value = [(1, 2), {3}, b"x", float("inf"), {4: None}]
    tests = {"kind": "call", "entry": "f", "literals": "tagged"}
    stored = code_tests.store_tests(
        {**tests, "cases": [{"args": code_tests.tagged([value]), "expected": code_tests.tagged(value)}]}, tmp_path
    )
    (case,) = code_tests.read_tests(*stored).cases
    assert (case.args, case.expected) == ((value,), value)


@pytest.mark.parametrize(
    "change",
    [{"kind": "other"}, {"entry": ""}, {"entry": "f()"}, {"cases": []}, {"cases": [{"args": [1]}]}, {"compare": "eval"},
     {"cases": [{"args": {"a": 1}, "expected": 1}]}, {"literals": "tagged", "cases": [{"args": [1], "expected": 1}]}],
)  # fmt: skip
def test_tests_of_another_shape_are_refused(change: dict[str, Any], tmp_path: Path):
    with pytest.raises(DocumentError, match="tests: "):
        code_tests.store_tests({**DOUBLE, **change}, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\x1f\x8bnonsense", b"\xff", b'{"kind": "call"}'])
def test_damaged_files_are_named(content: bytes, tmp_path: Path):
    path = tmp_path / "tests.json"
    path.write_bytes(content)
    with pytest.raises(DocumentError):
        code_tests.read_tests(path, "")
