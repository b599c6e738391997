"""`infuser verify`: a line in, a verdict out, in order, whatever the lines are."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from contained import needs_sandbox
from launcher import ROOT

from infuser_core.errors import MalformedInputError
from infuser_core.evaluation.verify_lines import Refusals, answer_lines
from infuser_core.plugins import VERIFIERS
from infuser_core.schemas import Verdict
from infuser_core.verifiers.parts.extract import PRESETS

INFUSER = [sys.executable, "-m", "flows.cli.main", "verify"]


def verify(*lines: object) -> list[dict[str, Any]]:
    texts = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
    return [json.loads(answer) for answer in answer_lines(texts)]


def asked(kind: str, gold: object, response: str, **more: object) -> dict[str, object]:
    return {"kind": kind, "gold": gold, "response": response, **more}


def test_every_kind_of_answer_is_verified():
    found = verify(
        asked("choice", "B", "so \\boxed{B}"),
        asked("choice", "b", "so \\boxed{C}", preset="official"),
        asked("integer", "042", "\\boxed{42}", preset="paper"),
        asked("integer", 7, "none"),
        asked("math", "\\frac{1}{2}", "\\boxed{0.5}", preset="strict-last"),
        asked("exact", "Yes", "\\boxed{\\text{yes}}"),
        asked("bbeh", "(a)", "\\boxed{a}"),
    )
    verdicts = ["correct", "wrong", "correct", "no_answer", "correct", "correct", "correct"]
    assert [one["verdict"] for one in found] == verdicts
    assert [list(one) for one in found] == [["verdict", "extracted", "reason"]] * 7
    assert found[0]["extracted"] == "B" and found[3]["extracted"] is None
    assert all(one["reason"] for one in found)


def test_the_preset_chooses_the_box():
    lines = [asked("choice", "B", "\\boxed{A} no, \\boxed{B}", preset=preset) for preset in PRESETS]
    assert [one["verdict"] for one in verify(*lines)] == ["wrong", "correct", "correct", "correct"]


def test_the_number_of_choices_bounds_the_letter():
    lines = [asked("choice", "A", "\\boxed{F}", **more) for more in ({}, {"choices": 4}, {"choices": ["w", "x"]})]
    reasons = [one["reason"] for one in verify(*lines)]
    assert reasons[0] != reasons[1] == reasons[2]
    assert verify(asked("choice", "F", "\\boxed{F}", choices=4))[0]["verdict"] == "unverified"


def test_grading_facts_reach_the_verifier():
    loose = asked("math", "1.00", "\\boxed{1.04}", tolerance="0.05", answer_type="Numerical")
    strict = asked("math", "1.00", "\\boxed{1.04}")
    assert [one["verdict"] for one in verify(loose, strict)] == ["correct", "wrong"]


MALFORMED = {
    "not JSON": b"{",
    "not text": b"\xff\xfe",
    "empty": b"",
    "no object": b"[1]",
    "deep": b"[" * 100_000,
    "no kind": b"{}",
    "kind of another sort": b'{"kind": ["choice"]}',
    "a kind from outside": b'{"kind": "os:system", "gold": "A", "response": ""}',
    "unknown preset": b'{"kind": "choice", "preset": "loose", "gold": "A", "response": ""}',
    "no gold": b'{"kind": "choice", "response": "x"}',
    "no response": b'{"kind": "choice", "gold": "A"}',
    "response is a number": b'{"kind": "exact", "gold": "A", "response": 5}',
    "gold is a list": b'{"kind": "exact", "gold": ["A"], "response": ""}',
    "gold is no letter": b'{"kind": "choice", "gold": "AB", "response": "x"}',
    "choices are none": b'{"kind": "choice", "gold": "A", "choices": 1, "response": "x"}',
    "tolerance is a list": b'{"kind": "math", "gold": "1", "tolerance": [1], "response": "x"}',
    "multiple is a word": b'{"kind": "math", "gold": "1", "multiple": "yes", "response": "x"}',
    "no tests": b'{"kind": "code", "solution": "x = 1"}',
    "tests are none": b'{"kind": "code", "solution": "x = 1", "tests": []}',
    "tests are numbers": b'{"kind": "code", "solution": "x = 1", "tests": [1]}',
    "endless": b'{"kind": "code", "solution": "x = 1", "tests": [{"stdin": "", "stdout": ""}], "seconds": 1e9}',
    "no solution": b'{"kind": "code", "tests": [{"stdin": "", "stdout": ""}]}',
}


def test_a_malformed_line_is_answered_in_its_place_and_stops_nothing():
    good = asked("choice", "B", "\\boxed{B}")
    found = verify(*(line for bad in MALFORMED.values() for line in (good, bad)), good)
    assert len(found) == 2 * len(MALFORMED) + 1
    assert {one["verdict"] for one in found[::2]} == {Verdict.CORRECT}
    for case, one in zip(MALFORMED, found[1::2], strict=True):
        assert (one["verdict"], one["extracted"]) == ("unverified", None), case
        assert one["reason"], case


def test_lines_that_are_no_questions_are_counted_and_the_first_are_named():
    good = json.dumps(asked("choice", "B", "\\boxed{B}")).encode()
    refusals = Refusals()
    for lines in ([good, b"{"], [b"\xff", good, b"{}", b"[1]"], [good]):
        list(answer_lines(lines, refusals))
    with pytest.raises(MalformedInputError) as caught:
        refusals.check()
    assert caught.value.message.startswith("4 of 7 lines are no questions: line 2: not JSON: ")
    assert "; line 3: not JSON: " in caught.value.message and "; line 5: unknown kind" in caught.value.message
    assert caught.value.message.endswith("; and 1 more")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (b"", "infuser: no lines on standard input\n"),
        (bytes(range(11, 256)), "infuser: 1 of 1 lines are no questions: line 1: not JSON: "),
        (b'{"kind": "exact", "gold": "A", "response": "\\\\boxed{A}"}\n', ""),
    ],
)
def test_garbage_is_exit_code_1(given: bytes, said: str):
    done = subprocess.run(INFUSER, cwd=ROOT, input=given, capture_output=True)
    assert (done.returncode, done.stderr.decode().startswith(said)) == (1 if said else 0, True)
    assert len(done.stdout.splitlines()) == (1 if given else 0)


def test_what_exists_is_named():
    kind, preset = verify({"kind": "maths"}, {"kind": "choice", "preset": "loose"})
    assert kind["reason"] == f"unknown kind 'maths': one of {', '.join(VERIFIERS.names())}"
    assert preset["reason"] == "unknown preset 'loose': one of paper, official, strict-last, phrase"


def test_a_user_of_a_pipe_sees_each_answer_before_the_next_question():
    process = subprocess.Popen(INFUSER, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None
    for letter in "AB":
        process.stdin.write(json.dumps(asked("choice", "B", f"\\boxed{{{letter}}}")) + "\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["extracted"] == letter
    process.stdin.write(json.dumps(asked("choice", "B", "\\boxed{C}")))  # no line end
    process.stdin.close()
    assert json.loads(process.stdout.readline())["extracted"] == "C"
    assert process.wait() == 0


def test_a_reader_who_has_seen_enough_is_no_error():
    text = (json.dumps(asked("choice", "A", "word " * 200 + "\\boxed{A}")) + "\n") * 3000
    process = subprocess.Popen(
        INFUSER, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdin and process.stdout and process.stderr
    os.set_blocking(process.stdin.fileno(), True)
    process.stdout.close()
    try:
        process.stdin.write(text)
        process.stdin.close()
    except BrokenPipeError:
        process.stdin = None
    assert (process.wait(), process.stderr.read()) == (0, "")


def test_choices_load_nothing_heavy():
    code = (
        "import sys\nfrom infuser_core.evaluation.verify_lines import answer_lines\n"
        'print(*answer_lines([b\'{"kind": "choice", "gold": "A", "response": "x"}\']))\n'
        "heavy = {'torch', 'numpy', 'pyarrow', 'pydantic', 'sympy', 'math_verify', 'yaml'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_programs_run_on_their_tests():
    stdin = [{"stdin": "1 2\n", "stdout": "3\n"}, {"stdin": "5 5\n", "stdout": "10\n"}]
    call = [{"call": "double", "args": [4], "expected": 8}]
    adds = "print(sum(map(int, input().split())))"
    boxed = "```python\ndef double(x):\n    return x * 2\n```"
    found = verify(
        {"kind": "code", "solution": adds, "tests": stdin, "seconds": 6},
        {"kind": "code", "solution": "print(3)", "tests": stdin},
        {"kind": "code", "response": f"Here: \\boxed{{{boxed}}}", "tests": call},
        {"kind": "code", "response": "I would double it.", "tests": call},
        asked("choice", "B", "\\boxed{B}"),
    )
    if any("sandbox" in str(one["reason"]) and one["verdict"] == "unverified" for one in found):
        pytest.skip("this host cannot run programs")
    assert [one["verdict"] for one in found] == ["correct", "wrong", "correct", "no_answer", "correct"]


@needs_sandbox
def test_a_program_may_have_a_setup_and_numpy():
    tests = [{"call": "f", "args": [3], "expected": 10}]
    line = {
        "kind": "code",
        "solution": "import numpy\ndef f(n): return int(numpy.arange(n).sum()) + BASE",
        "tests": tests,
    }
    line |= {"setup": "BASE = 7", "seconds": 30}
    with_numpy, without = verify({**line, "scientific": True}, line)
    assert (with_numpy["verdict"], without["verdict"]) == ("correct", "wrong")
    assert verify({**line, "setup": 7})[0]["reason"].startswith("setup: ")
