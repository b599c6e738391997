"""Programs in a response: extracted, run in the sandbox on the problem's tests, compared outside it.

`paper`: what stands in the first box is the program, inside a fenced block or bare; no box, no program.
`strict-last`, `phrase`: the last closed fenced block that defines the function asked for, or is marked as Python, or
the last one; without a block, the last box. Blocks are those of Markdown, in lists and quotes as well.
`official`: the same block, or the text from its first line of code on; where a function is asked for, only imports,
definitions and assignments are kept, as evalplus does (line by line where the text is no whole program).
Reasoning is no part of the answer. The boundary of a boxed program in a fence is the fence: a brace inside a string
of the program closes no box.

The tests are the JSON file that `grading_of(question).tests` names, absolute or below `INFUSER_DATA`, with the digest
`tests_sha256`, or its `cases` themselves; their format stands in `parts/code_tests.py`. Before a batch a known good
program and a known cheat are judged. If either comes out wrong, or the sandbox breaks down, nothing is known of the
batch and every verdict is `unverified`. A program is wrong only when it ran and failed a test.
"""

import ast
import json
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING, Any

from infuser_core.errors import ConfigError, DocumentError
from infuser_core.reasoning import answer_of
from infuser_core.sandbox.program import SandboxError
from infuser_core.schemas import Question, Verdict
from infuser_core.settings import data_root, sandbox_mode
from infuser_core.verifiers.parts.batch import Job
from infuser_core.verifiers.parts.code_tests import CodeTests, judge, parse_tests, read_tests
from infuser_core.verifiers.parts.extract import PRESETS, boxes, unwrap
from infuser_core.verifiers.parts.grading import Finding, correct, grading_of, no_answer, unverified, wrong

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

RUNS_PROGRAMS = True
PROMPT = "solve_code"
_PYTHON = frozenset(["python", "py", "python3", "python2"])
# Possessive: a run of one character is read once, however long it is. Groups are not: Python 3.11.2 loses matches.
_FENCE = re.compile(
    r"^(?:[^\n`]*\\boxed\s*+\{[ \t]*+(?:\\text\w*+\s*+\{)?)?[ \t]*+(`{3,}+|~{3,}+)[ \t]*+([\w+#.-]*+)[^\n`]*+$",
    re.MULTILINE,
)
_BOX_OPENS = re.compile(r"(\\boxed\s*+\{[ \t]*+(?:\\text\w*+\s*+\{)?)[ \t]*+(?=`{3}|~{3})")
_BOX_CLOSES = re.compile(r"^([ \t]*+(?:`{3,}+|~{3,}+))[ \t]*+\}", re.MULTILINE)
_FENCED_BOX = re.compile(r"\\boxed\s*+\{\s*+(?:\\text\w*+\s*+\{\s*+)?(`{3,}+|~{3,}+)[ \t]*+[\w+#.-]*+[ \t]*+\n")
_VERBATIM = re.compile(r"\s*\\begin(\{(?:verbatim|lstlisting|minted)\})(?:\[[^\]\n]*\]|\{[^}\n]*\})*")
_CODE_LINE = re.compile(r"^(?:import |from \w[\w.]* import |def |async def |class |@\w)", re.MULTILINE)
_DEFINITIONS = (
    ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign,
)  # fmt: skip
_KEPT = re.compile(r"(?:import |from |def |async def |class |@|[A-Za-z_][\w, ]*(?::[^=\n]+)?=[^=]|[)\]}#]|\s|$)")


def program(response: str, *, preset: str, entry: str = "") -> str | None:
    """The program's source, or None when the response has none; `entry` is the function asked for, if any."""
    if preset not in PRESETS:
        raise ConfigError(f"code verifier: unknown preset {preset!r}", hint=f"presets: {', '.join(PRESETS)}")
    answer = answer_of(response)
    if preset == "paper":
        found = boxed(answer, last=False)
    elif preset in ("strict-last", "phrase"):
        found = last_block(answer, entry=entry) or boxed(answer, last=True)
    else:
        found = last_block(answer, entry=entry)
        if found is None and (start := _CODE_LINE.search(answer)):
            found = answer[start.start() :]
        found = _definitions(found) if found and entry else found
    return found if found and found.strip() else None


def last_block(text: str, *, entry: str = "") -> str | None:
    """Content of the closed fenced block that holds the program: the last one that defines the function asked for.

    Where none does, or whole programs are asked for, the last block that is marked as Python, else the last one: an
    example of use, or a sample output, often follows the program.
    """
    found = [(language, content) for language, content in blocks(text) if content.strip()]
    name = re.escape(entry.rpartition(".")[2])
    defines = re.compile(rf"^[ \t]*(?:async[ \t]+)?def[ \t]+{name}\b|^{name}[ \t]*[:=]", re.MULTILINE)
    own = [content for _, content in found if entry and defines.search(content)]
    marked = [content for language, content in found if language.lower() in _PYTHON]
    return next((group[-1] for group in (own, marked, [content for _, content in found]) if group), None)


def blocks(text: str) -> list[tuple[str, str]]:
    """Language and content of every closed fenced block, as CommonMark has them.

    A block without an end of its own is no Markdown (one that was forgotten, a list that it is not indented for): such
    text is read line by line.
    """
    if "```" not in text and "~~~" not in text:
        return []
    plain = _BOX_CLOSES.sub(r"\1\n}", _BOX_OPENS.sub(r"\1\n", text))
    lines, found = plain.split("\n"), []
    for token in _markdown().parse(plain):
        if token.type != "fence":
            continue
        first, end = token.map or (0, 0)
        closed = end - first > 1 and re.fullmatch(rf"[\s>]*{token.markup}[`~]*\s*", lines[end - 1])
        if not closed or re.search(rf"^[ \t]*{token.markup}\w", token.content, re.MULTILINE):
            return list(_scanned(text))
        language = re.match(r"[{.\s]*([\w+#-]*)", token.info)
        found.append((language.group(1) if language else "", token.content))
    return found


@cache
def _markdown() -> "MarkdownIt":
    """CommonMark's blocks. HTML is text: a fence counts inside of `<details>` as well."""
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark").disable(["inline", "html_block"])


def _scanned(text: str) -> Iterator[tuple[str, str]]:
    """Closed fenced blocks without regard to lists and quotes."""
    opened = None
    for fence in _FENCE.finditer(text):
        mark, language = fence.group(1), fence.group(2)
        if opened is None:
            opened = fence
        elif mark.startswith(opened.group(1)) and not language:
            yield opened.group(2), text[opened.end() + 1 : fence.start()]
            opened = None
        elif language and mark == opened.group(1):
            # A block that was never closed, then another: the text between them is prose.
            opened = fence


def boxed(text: str, *, last: bool) -> str | None:
    """Content of the first or last closed box, without the fence or wrapper around the program."""
    fenced = _fenced_boxes(text)
    if not fenced:
        return _bare(text, last=last)
    start, end, content = fenced[-1 if last else 0]
    return _bare(text[end:] if last else text[:start], last=last) or content


def _fenced_boxes(text: str) -> list[tuple[int, int, str]]:
    """Start, end and content between the fences of every box around a fenced block."""
    found: list[tuple[int, int, str]] = []
    place, unclosed = 0, set()
    while opening := _FENCED_BOX.search(text, place):
        place, mark = opening.end(), opening.group(1)
        if mark in unclosed:
            continue
        closing = re.compile(rf"^[ \t]*{re.escape(mark)}[`~]*\s*\}}", re.MULTILINE).search(text, place)
        if closing is None:
            # Nor does any later one close, so the text is not searched again.
            unclosed.add(mark)
            continue
        found.append((opening.start(), closing.end(), text[opening.end() : closing.start()]))
        place = closing.end()
    return found


def _bare(text: str, *, last: bool) -> str | None:
    found = boxes(text)
    if not found:
        return None
    content = unwrap(found[-1 if last else 0])
    if verbatim := _VERBATIM.match(content):
        inner, ending = content[verbatim.end() :].rstrip(), rf"\end{verbatim[1]}"
        return inner.removesuffix(ending) if inner.endswith(ending) else content
    return content


def _definitions(source: str) -> str:
    """Top-level statements that define something; tests, prints and prose after them are dropped."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            statements = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return _defining_lines(source)
    lines = source.split("\n")
    kept: list[str] = []
    for each in statements:
        if isinstance(each, _DEFINITIONS):
            first = min([each.lineno, *(above.lineno for above in getattr(each, "decorator_list", []))])
            kept += lines[first - 1 : each.end_lineno]
    return "\n".join(kept)


def _defining_lines(source: str) -> str:
    """The same, line by line, for text that is no whole program."""
    kept, keeping = [], True
    for line in source.split("\n"):
        if line[:1] not in ("", " ", "\t", "#", ")", "]", "}"):
            keeping = _KEPT.match(line) is not None and not line.startswith("if ")
        if keeping:
            kept.append(line)
    return "\n".join(kept)


# Prints the square, then what it could reach that a contained program cannot.
GOOD = """
import os, sys
print(int(input()) ** 2)
if input() == "bwrap":
    for path in "/etc/passwd", "/root", "/home", "/tmp":
        if os.access(path, os.R_OK) and not sys.base_prefix.startswith(path + "/"):
            print(path)
    for path in "/", "/usr/lib", "/dev":
        if os.access(path, os.W_OK):
            print("writable", path)
    known = {"PYTHONHASHSEED", "PWD", "LC_CTYPE"}
    print(*(name for name in os.environ if name not in known), sep="", end="")
    print(open("/proc/1/environ").read().replace("PWD=/\\0", ""), end="")
    if os.getppid() > 2:
        print("other processes")
"""
# The first answer is right; the second agrees with everything that is asked of it where it lives.
CHEAT = """
class Same(str):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    __hash__ = str.__hash__
def answer(honest):
    return "right" if honest else Same("wrong")
"""


def canary() -> str:
    """Empty when the judge can be trusted, else what went wrong. Raises SandboxUnavailable where there is none."""
    mode = sandbox_mode()
    good = parse_tests({"kind": "stdin", "cases": [{"stdin": f"7\n{mode}\n", "stdout": "49"}], "seconds": 20})
    calls = [{"args": [honest], "expected": "right"} for honest in (True, False)]
    cheat = parse_tests({"kind": "call", "entry": "answer", "cases": calls, "seconds": 20})
    try:
        judgement = judge(GOOD, good)
        if not judgement.passed:
            return f"a good program failed: {judgement.reason}"
        judgement = judge(CHEAT, cheat)
    except SandboxError as error:
        return error.message
    if judgement.passed:
        return "a cheat passed"
    return "" if judgement.failed == 1 else f"an honest answer failed: {judgement.reason}"


WORKERS = 2
"""Sandboxes at once."""
KEPT_TESTS = 8
"""Problems whose tests stay in memory: those of one contest problem can be tens of megabytes."""
_tests = lru_cache(maxsize=KEPT_TESTS)(read_tests)
_HINT = 'each test is {"stdin", "stdout"} or {"call", "args", "expected"}'


def check(response: str, question: Question, *, preset: str = "paper") -> Finding:
    """Correct when the response's program passes all tests of the question. Raises SandboxUnavailable."""
    return check_many([Job(response=response, question=question)], preset=preset)[0]


def check_many(jobs: Sequence[Job], *, preset: str = "paper") -> list[Finding]:
    """One finding per job, in order, from several sandboxes at once. Raises SandboxUnavailable where there is none."""
    trouble = canary() if any(program(job.response, preset=preset) is not None for job in jobs) else ""
    pool = ThreadPoolExecutor(max_workers=WORKERS)
    try:
        return list(pool.map(partial(_check, preset=preset, trouble=trouble), jobs))
    finally:
        # An interrupted batch must not go on with the jobs that have not begun.
        pool.shutdown(cancel_futures=True)


def verify_solution(
    solution: str, tests: list[dict[str, Any]], *, seconds: float = 6.0, setup: str = "", scientific: bool = False
) -> Finding:
    """A bare program against tests `{"stdin", "stdout"}` or `{"call", "args", "expected"}`.

    `setup` runs before it in the same name space; `scientific` programs may import numpy. A tuple answers a list here:
    JSON cannot ask for one. Raises DocumentError for tests of another shape and SandboxUnavailable when this host
    cannot run programs.
    """
    common = {"seconds": seconds, "tuples_equal_lists": True, "setup": setup, "scientific": scientific}
    groups = [parse_tests({**group, **common}) for group in _grouped(tests)]
    if not solution.strip():
        return no_answer("no program")
    trouble = canary()
    for group in groups:
        found = _judged(solution, group, trouble)
        if found.verdict != Verdict.CORRECT:
            break
    return found


def _grouped(tests: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Tests in the stored format, one set per function called; whole programs are a set of their own."""
    groups: dict[str, dict[str, Any]] = {}
    for number, test in enumerate(tests):
        if not isinstance(test, Mapping) or ("call" in test) == ("stdin" in test):
            raise DocumentError(f"tests: number {number} is {str(test)[:80]!r}", hint=_HINT)
        entry = str(test.get("call", ""))
        kind = "call" if "call" in test else "stdin"
        groups.setdefault(entry, {"kind": kind, "entry": entry, "cases": []})["cases"].append(test)
    if not groups:
        raise DocumentError("tests: none", hint="a program without tests cannot be wrong")
    return list(groups.values())


def _check(job: Job, *, preset: str, trouble: str) -> Finding:
    grading = grading_of(job.question)
    found = program(job.response, preset=preset)
    if found is None:
        return no_answer()
    if not (grading.tests or grading.cases):
        return unverified("question without tests", found)
    try:
        path = data_root() / grading.tests
        tests = parse_tests(json.loads(grading.cases)) if grading.cases else _tests(path, grading.tests_sha256)
    except DocumentError as error:
        return unverified(f"unreadable tests: {error.message}", found)
    except ValueError as error:
        return unverified(f"unreadable tests: cases {grading.cases[:80]!r}: {error}", found)
    found = program(job.response, preset=preset, entry=tests.program.entry) or found
    return _judged(found, tests, trouble)


def _judged(source: str, tests: CodeTests, trouble: str) -> Finding:
    if trouble:
        return unverified(f"sandbox canary: {trouble}", source)
    try:
        judgement = judge(source, tests)
    except SandboxError as error:
        return unverified(f"sandbox: {error.message}", source)
    mode = sandbox_mode()
    reason = judgement.reason + ("" if mode == "bwrap" else f" ({mode} sandbox)")
    return correct(reason, source) if judgement.passed else wrong(reason, source)
