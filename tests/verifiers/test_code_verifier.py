"""The code verifier: the program in a response, and its verdict."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from contained import needs_sandbox

from infuser_core.errors import DocumentError
from infuser_core.prompts.templates import load_template
from infuser_core.schemas import Question, Verdict
from infuser_core.verifiers import code
from infuser_core.verifiers.code import extract_program
from infuser_core.verifiers.parts import code_tests
from infuser_core.verifiers.parts.batch import Job, check_all
from infuser_core.verifiers.parts.extract import PRESETS
from infuser_core.verifiers.parts.grading import Finding, Grading, as_text

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


@needs_sandbox
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


@needs_sandbox
def test_a_response_without_a_program_is_no_answer_and_nothing_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("INFUSER_SANDBOX", "no such mode")
    asked = question(code_tests.store_tests(ECHO, tmp_path))
    assert verdict(code.check("print(input().upper())", asked)) == (Verdict.NO_ANSWER, "no box")


@needs_sandbox
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


@needs_sandbox
def test_a_question_without_tests_cannot_be_verified():
    assert verdict(code.check(RIGHT, question(None))) == (Verdict.UNVERIFIED, "question without tests")


@needs_sandbox
def test_many_jobs_keep_their_order(tmp_path: Path):
    echo, double = (question(code_tests.store_tests(tests, tmp_path)) for tests in (ECHO, DOUBLE))
    twice = "\\boxed{\n```python\ndef double(n):\n    return n + n\n```\n}"
    jobs = [Job(response=r, question=q) for r, q in [(RIGHT, echo), (twice, double), ("", echo), (RIGHT, double)] * 3]
    found = [each.verdict for each in check_all(jobs)]
    assert found == [Verdict.CORRECT, Verdict.CORRECT, Verdict.NO_ANSWER, Verdict.WRONG] * 3


@needs_sandbox
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


@needs_sandbox
@pytest.mark.parametrize("tests", [[], [{}], ["x"], [{"stdin": "1"}], [{"call": "f", "args": 1, "expected": 1}],
                                   [{"call": "f(", "args": [], "expected": 1}], [{"stdin": "", "stdout": "",
                                   "call": "f"}],
                                   [{"stdin": 1, "stdout": "1"}], [{"call": "f", "args": []}]])  # fmt: skip
def test_bare_solutions_need_tests_of_the_documented_shape(tests: list[Any]):
    with pytest.raises(DocumentError, match="tests: "):
        code.verify_solution("print(1)", tests)


@needs_sandbox
def test_stored_tests_are_one_file_per_content(tmp_path: Path):
    first, again = code_tests.store_tests(DOUBLE, tmp_path), code_tests.store_tests(dict(DOUBLE), tmp_path)
    assert first == again
    assert [path.name for path in tmp_path.iterdir()] == [first[0].name]
    read = code_tests.read_tests(*first)
    assert [case.expected for case in read.cases] == [0, 2, 4, 6, 8]


@needs_sandbox
def test_large_tests_are_compressed_to_the_same_bytes_every_time(tmp_path: Path):
    large = {"kind": "stdin", "cases": [{"stdin": "x" * 100_000, "stdout": "y"}]}
    first, again = (code_tests.store_tests(large, tmp_path / name) for name in ("one", "two"))
    assert first[0].suffixes == [".json", ".gz"]
    assert (first[1], first[0].stat().st_size < 1000) == (again[1], True)
    assert code_tests.read_tests(*first).cases[0].stdin == "x" * 100_000


@needs_sandbox
def test_tagged_tests_hold_what_json_cannot(tmp_path: Path):
    value = [(1, 2), {3}, b"x", float("inf"), {4: None}]
    tests = {"kind": "call", "entry": "f", "literals": "tagged"}
    stored = code_tests.store_tests(
        {**tests, "cases": [{"args": code_tests.tagged([value]), "expected": code_tests.tagged(value)}]}, tmp_path
    )
    (case,) = code_tests.read_tests(*stored).cases
    assert (case.args, case.expected) == ((value,), value)


@needs_sandbox
@pytest.mark.parametrize(
    "change",
    [{"kind": "other"}, {"entry": ""}, {"entry": "f()"}, {"cases": []}, {"cases": [{"args": [1]}]}, {"compare": "eval"},
     {"cases": [{"args": {"a": 1}, "expected": 1}]}, {"literals": "tagged", "cases": [{"args": [1], "expected": 1}]}],
)  # fmt: skip
def test_tests_of_another_shape_are_refused(change: dict[str, Any], tmp_path: Path):
    with pytest.raises(DocumentError, match="tests: "):
        code_tests.store_tests({**DOUBLE, **change}, tmp_path)
    assert list(tmp_path.iterdir()) == []


@needs_sandbox
@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\x1f\x8bnonsense", b"\xff", b'{"kind": "call"}'])
def test_damaged_files_are_named(content: bytes, tmp_path: Path):
    path = tmp_path / "tests.json"
    path.write_bytes(content)
    with pytest.raises(DocumentError):
        code_tests.read_tests(path, "")


# Which text of a response is the program, under each preset


FENCE = "```"


def fenced(code: str, language: str = "python") -> str:
    return f"{FENCE}{language}\n{code}\n{FENCE}"


def boxed(code: str) -> str:
    return f"\\boxed{{\n{fenced(code)}\n}}"


def test_the_official_preset_keeps_definitions_where_a_function_is_asked_for():
    source = """import math
LIMIT: int = 3
x = {
    "a": 1,
}

@decorated
def f(n):
    if n == 1:
        return math.pi

    return LIMIT

print(f(3))
assert f(1) == 2
if __name__ == "__main__":
    f(2)
# done
class A:
    pass
x += 1
f(4)"""
    found = extract_program(fenced(source), preset="official", entry="f")
    assert found is not None
    kept = [line for line in found.splitlines() if line.strip()]
    dropped = {"print(f(3))", "assert f(1) == 2", 'if __name__ == "__main__":', "    f(2)", "# done", "x += 1", "f(4)"}
    assert kept == [line for line in source.splitlines() if line.strip() and line not in dropped]
    assert extract_program(fenced(source), preset="official") == source + "\n"


def test_the_official_preset_keeps_strings_of_several_lines():
    source = 'VOWELS = """aeiou\nAEIOU"""\nTABLE = (\n    1,\n)\n\ndef f(s):\n    return [c for c in s if c in VOWELS]'
    assert extract_program(fenced(f"{source}\n\nprint(f('ab'))"), preset="official", entry="f") == source.replace(
        "\n\n", "\n"
    )


@pytest.mark.parametrize("preset", ["official", "strict-last", "phrase"])
@pytest.mark.parametrize("language", ["", "python", "text"])
def test_an_example_of_use_after_the_program_is_not_the_program(preset: str, language: str):
    usage = fenced("print(f(3))  # 9", language)
    response = f"{fenced('def f(n):' + chr(10) + '    return n * n')}\n\nExample usage:\n\n{usage}\n"
    found = extract_program(response, preset=preset, entry="f")
    assert found is not None and "def f(n)" in found and "print" not in found


@pytest.mark.parametrize("preset", ["official", "strict-last", "phrase"])
def test_a_sample_output_after_a_whole_program_is_not_the_program(preset: str):
    response = f"{fenced('print(int(input()) ** 2)')}\n\nFor 3 it prints\n\n{fenced('9', '')}\n"
    assert (extract_program(response, preset=preset) or "").strip() == "print(int(input()) ** 2)"


SQUARE = "def f(n):\n    return n * n"


def indented(text: str, by: str) -> str:
    return "".join(by + line for line in text.splitlines(keepends=True))


@pytest.mark.parametrize(
    "response",
    [
        f"1. Write it:\n\n{indented(fenced(SQUARE), '   ')}\n\n2. Try it.",
        f"- a\n  - b:\n\n{indented(fenced(SQUARE), '    ')}\n",
        f"1. Write it:\n   ```python\n{SQUARE}\n   ```\n2. Try it.",
        indented(fenced(SQUARE), "> "),
        indented(fenced(SQUARE), "  "),
        fenced(SQUARE, "{.python}"),
        fenced(SQUARE, 'python title="a.py"'),
        fenced(SQUARE).replace("`", "~"),
        fenced(SQUARE).replace("\n", "\r\n"),
        f"<details>\n{fenced(SQUARE)}\n</details>",
        f"```python\ndef g(): pass\n\nNo:\n\n{fenced(SQUARE)}\n",
        f"{fenced(SQUARE)}\n\n{fenced('class T:' + chr(10) + '    def test_f(self): f(2)')}",
        fenced("def f(n):\n    \'\'\'\n    ```\n    f(2)\n    ```\n    \'\'\'\n    return n * n"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("preset", ["official", "strict-last", "phrase"])
def test_a_block_of_markdown_is_the_program_wherever_it_stands(preset: str, response: str):
    scope: dict[str, Callable[[int], int]] = {}
    exec(extract_program(response, preset=preset, entry="f") or "", scope)
    assert scope["f"](3) == 9


@pytest.mark.parametrize("preset", PRESETS)
def test_an_answer_in_the_form_that_the_prompt_asks_for(preset: str):
    template = load_template("solve_code", profile="paper")
    user = template.messages(question="Add {two} numbers.")[-1]["content"]
    assert "Add {two} numbers." in user
    form = user[user.index("\\boxed{\n") :].partition("\n}\n")[0] + "\n}"
    answer = "First I think.\n\n" + form.replace("PROGRAM", "print({1: 'a}'})")
    assert extract_program(answer, preset=preset) == "print({1: 'a}'})\n"


@pytest.mark.parametrize(
    "piece",
    ["\\boxed{```\n", "```\n", "```python\n", "\\boxed{", "\\boxed{```\n```", "~~~\n```\n", "\\begin{verbatim}{",
    "{" * 50, " \t", "\\boxed{ "],
)  # fmt: skip
@pytest.mark.parametrize("preset", PRESETS)
def test_long_hostile_responses_are_read_once(piece: str, preset: str):
    found = extract_program(piece * (200_000 // len(piece)), preset=preset, entry="f")
    assert found is None or len(found) <= 200_000
