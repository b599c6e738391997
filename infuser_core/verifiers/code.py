"""Verify programs: extract the program of a response, run it in a sandbox on the problem's tests, compare the results.

`paper`: the program is the content of the first LaTeX box, in a fenced block or bare; without a box there is none.
`strict-last`, `phrase`: the last closed fenced block that defines the requested function, or is marked as Python, or
the last one; without a block, the last box. Blocks are those of Markdown, in lists and quotes as well.
`official`: the same block, or the text from its first line of code. If a function is requested, only imports,
definitions and assignments remain, as in evalplus (line by line if the text is not valid Python).
The reasoning is removed first. A boxed program in a fence ends at the fence: a brace in a string closes no box.

The tests are the `cases` of `grading_of(question)`, or its JSON file `tests`, absolute or below `INFUSER_DATA`, with
the digest `tests_sha256`; `parts/code_tests.py` defines their format. Results are compared outside of the sandbox.
Before each batch the sandbox is checked with one correct and one cheating program. If either verdict is wrong, or the
sandbox fails, every verdict of the batch is `unverified`. A program is wrong only if it ran and failed a test.
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
from infuser_core.prompts.reasoning import answer_of
from infuser_core.schemas import Question, Verdict
from infuser_core.settings import data_root, sandbox_mode
from infuser_core.verifiers.parts.batch import Job
from infuser_core.verifiers.parts.code_tests import CodeTests, judge, parse_tests, read_tests
from infuser_core.verifiers.parts.extract import PRESETS, boxes, unwrap
from infuser_core.verifiers.parts.grading import Finding, correct, grading_of, no_answer, unverified, wrong
from infuser_core.verifiers.sandbox.program import SandboxError

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

RUNS_PROGRAMS = True
PROMPT = "solve_code"
_PYTHON = frozenset(["python", "py", "python3", "python2"])
# Possessive quantifiers read a long run of one character only once. Groups have none: Python 3.11.2 loses matches.
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
_DEFINING_LINE = re.compile(
    r"(?:import |from |def |async def |class |@|[A-Za-z_][\w, ]*(?::[^=\n]+)?=[^=]|[)\]}#]|\s|$)"
)


def extract_program(response: str, *, preset: str, entry: str = "") -> str | None:
    """The source of the program in a response, or None; `entry` is the requested function, if any."""
    if preset not in PRESETS:
        raise ConfigError(f"code verifier: unknown preset {preset!r}", hint=f"presets: {', '.join(PRESETS)}")
    answer = answer_of(response)
    if preset == "paper":
        source = boxed_program(answer, last=False)
    elif preset in ("strict-last", "phrase"):
        source = last_block(answer, entry=entry) or boxed_program(answer, last=True)
    else:
        source = last_block(answer, entry=entry)
        if source is None and (start := _CODE_LINE.search(answer)):
            source = answer[start.start() :]
        source = _definitions(source) if source and entry else source
    return source if source and source.strip() else None


def last_block(text: str, *, entry: str = "") -> str | None:
    """Content of the last closed fenced block that defines the requested function.

    If none does, or whole programs are requested: the last block marked as Python, else the last one. An example of use
    or a sample output often follows the program.
    """
    fenced = [(language, content) for language, content in blocks(text) if content.strip()]
    name = re.escape(entry.rpartition(".")[2])
    defines = re.compile(rf"^[ \t]*(?:async[ \t]+)?def[ \t]+{name}\b|^{name}[ \t]*[:=]", re.MULTILINE)
    defining = [content for _, content in fenced if entry and defines.search(content)]
    python = [content for language, content in fenced if language.lower() in _PYTHON]
    return next((group[-1] for group in (defining, python, [content for _, content in fenced]) if group), None)


def blocks(text: str) -> list[tuple[str, str]]:
    """Language and content of every closed fenced block, by the rules of CommonMark.

    A text with an unclosed block (a missing fence, wrong indentation in a list) is scanned line by line instead.
    """
    if "```" not in text and "~~~" not in text:
        return []
    plain = _BOX_CLOSES.sub(r"\1\n}", _BOX_OPENS.sub(r"\1\n", text))
    lines, fenced = plain.split("\n"), []
    for token in _markdown_parser().parse(plain):
        if token.type != "fence":
            continue
        first, end = token.map or (0, 0)
        closed = end - first > 1 and re.fullmatch(rf"[\s>]*{token.markup}[`~]*\s*", lines[end - 1])
        if not closed or re.search(rf"^[ \t]*{token.markup}\w", token.content, re.MULTILINE):
            return list(_scan_lines(text))
        language = re.match(r"[{.\s]*([\w+#-]*)", token.info)
        fenced.append((language.group(1) if language else "", token.content))
    return fenced


@cache
def _markdown_parser() -> "MarkdownIt":
    """A parser of CommonMark's blocks. HTML is read as text, so a fenced block inside of `<details>` is found."""
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark").disable(["inline", "html_block"])


def _scan_lines(text: str) -> Iterator[tuple[str, str]]:
    """Closed fenced blocks, ignoring lists and quotes."""
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


def boxed_program(text: str, *, last: bool) -> str | None:
    """Content of the first or last closed box, without the fence or wrapper around the program."""
    fenced = _fenced_boxes(text)
    if not fenced:
        return _unfenced_box(text, last=last)
    start, end, content = fenced[-1 if last else 0]
    return _unfenced_box(text[end:] if last else text[:start], last=last) or content


def _fenced_boxes(text: str) -> list[tuple[int, int, str]]:
    """Start, end and content between the fences of every box around a fenced block."""
    fenced: list[tuple[int, int, str]] = []
    place, unclosed = 0, set()
    while opening := _FENCED_BOX.search(text, place):
        place, mark = opening.end(), opening.group(1)
        if mark in unclosed:
            continue
        closing = re.compile(rf"^[ \t]*{re.escape(mark)}[`~]*\s*\}}", re.MULTILINE).search(text, place)
        if closing is None:
            # Later boxes with the same fence are not closed either.
            unclosed.add(mark)
            continue
        fenced.append((opening.start(), closing.end(), text[opening.end() : closing.start()]))
        place = closing.end()
    return fenced


def _unfenced_box(text: str, *, last: bool) -> str | None:
    contents = boxes(text)
    if not contents:
        return None
    content = unwrap(contents[-1 if last else 0])
    if verbatim := _VERBATIM.match(content):
        inner, ending = content[verbatim.end() :].rstrip(), rf"\end{verbatim[1]}"
        return inner.removesuffix(ending) if inner.endswith(ending) else content
    return content


def _definitions(source: str) -> str:
    """The top-level imports, definitions and assignments of a source text."""
    lines = source.split("\n")
    definitions: list[str] = []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            statements = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        is_definition = True
        for line in lines:
            if line[:1] not in ("", " ", "\t", "#", ")", "]", "}"):
                is_definition = _DEFINING_LINE.match(line) is not None and not line.startswith("if ")
            if is_definition:
                definitions.append(line)
        return "\n".join(definitions)
    for statement in statements:
        if isinstance(statement, _DEFINITIONS):
            decorators = getattr(statement, "decorator_list", [])
            first = min(part.lineno for part in (statement, *decorators))
            definitions += lines[first - 1 : statement.end_lineno]
    return "\n".join(definitions)


# Prints the square, then everything that a sandboxed program must not be able to reach.
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
# Its first answer is right; its second is a wrong text that claims to equal everything.
CHEAT = """
class Same(str):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    __hash__ = str.__hash__
def answer(honest):
    return "right" if honest else Same("wrong")
"""


def canary() -> str:
    """Check the sandbox with a correct and a cheating program: empty if both verdicts are right, else the failure.

    Raises SandboxUnavailable if this host has no sandbox.
    """
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
"""Sandboxes that run at the same time."""
MAX_CACHED_TESTS = 8
"""Problems whose tests are cached: those of one contest problem can be tens of megabytes."""
_cached_tests = lru_cache(maxsize=MAX_CACHED_TESTS)(read_tests)
_HINT = 'each test is {"stdin", "stdout"} or {"call", "args", "expected"}'


def check(response: str, question: Question, *, preset: str = "paper") -> Finding:
    """Verify one response: correct if its program passes all tests of the question. Raises SandboxUnavailable."""
    return check_many([Job(response=response, question=question)], preset=preset)[0]


def check_many(jobs: Sequence[Job], *, preset: str = "paper") -> list[Finding]:
    """Verify responses in several sandboxes: one finding per job, in order. Raises SandboxUnavailable."""
    trouble = canary() if any(extract_program(job.response, preset=preset) is not None for job in jobs) else ""
    pool = ThreadPoolExecutor(max_workers=WORKERS)
    try:
        return list(pool.map(partial(_check_job, preset=preset, trouble=trouble), jobs))
    finally:
        # An interrupted batch must not start its remaining jobs.
        pool.shutdown(cancel_futures=True)


def verify_solution(
    solution: str, tests: list[dict[str, Any]], *, seconds: float = 6.0, setup: str = "", scientific: bool = False
) -> Finding:
    """Verify the source of a program by tests `{"stdin", "stdout"}` or `{"call", "args", "expected"}`.

    `setup` runs before the program in its namespace; `scientific` programs may import numpy. A tuple equals a list, as
    JSON has no tuples. Raises DocumentError for malformed tests, SandboxUnavailable if this host cannot run programs.
    """
    common = {"seconds": seconds, "tuples_equal_lists": True, "setup": setup, "scientific": scientific}
    groups = [parse_tests({**group, **common}) for group in _group_tests(tests)]
    if not solution.strip():
        return no_answer("no program")
    trouble = canary()
    for group in groups:
        finding = _finding_of(solution, group, trouble)
        if finding.verdict != Verdict.CORRECT:
            break
    return finding


def _group_tests(tests: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Group tests into the stored format: one set per function, and one for whole programs."""
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


def _check_job(job: Job, *, preset: str, trouble: str) -> Finding:
    grading = grading_of(job.question)
    source = extract_program(job.response, preset=preset)
    if source is None:
        return no_answer()
    if not (grading.tests or grading.cases):
        return unverified("question without tests", source)
    try:
        path = data_root() / grading.tests
        tests = parse_tests(json.loads(grading.cases)) if grading.cases else _cached_tests(path, grading.tests_sha256)
    except DocumentError as error:
        return unverified(f"unreadable tests: {error.message}", source)
    except ValueError as error:
        return unverified(f"unreadable tests: cases {grading.cases[:80]!r}: {error}", source)
    source = extract_program(job.response, preset=preset, entry=tests.program.entry) or source
    return _finding_of(source, tests, trouble)


def _finding_of(source: str, tests: CodeTests, trouble: str) -> Finding:
    if trouble:
        return unverified(f"sandbox canary: {trouble}", source)
    try:
        judgement = judge(source, tests)
    except SandboxError as error:
        return unverified(f"sandbox: {error.message}", source)
    mode = sandbox_mode()
    reason = judgement.reason + ("" if mode == "bwrap" else f" ({mode} sandbox)")
    return correct(reason, source) if judgement.passed else wrong(reason, source)
