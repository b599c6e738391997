"""Test files of programming problems, and the comparison of a program's output with them.

One JSON file per problem, named by its own digest:

    {"kind": "stdin" | "call", "entry": "f" | "Solution.f", "setup": "...",
     "cases": [{"stdin": "...", "stdout": "..."} | {"args": [...], "expected": ...}, ...],
     "literals": "json" | "tagged", "compare": "equal" | "polynomial_root",
     "seconds": 6, "memory_mb": 1024, "atol": 0, "tuples_equal_lists": false, "scientific": false}

`scientific` lets programs import numpy. `literals` says how `args` and `expected` are written: plain JSON, or the
tagged JSON of `sandbox/literals.py` where a problem has tuples, sets, bytes, large integers or floats that are no
numbers. Files above 64 KiB are gzip-compressed.

The comparison happens outside the sandbox, with what never went in. Whatever a program returned was rebuilt from tagged
JSON, so every value has exactly a built-in type and no comparison runs code of the program. Integers and floats compare
by value, as the benchmarks do; a boolean is no number.
"""

import gzip
import hashlib
import io
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

from infuser_core import durable
from infuser_core.errors import DocumentError
from infuser_core.sandbox import literals
from infuser_core.sandbox.program import Case, CaseOutcome, Kind, Limits, Program, Status
from infuser_core.sandbox.run import run

COMPARISONS = ("equal", "polynomial_root")
COMPRESS_FROM = 64 << 10
"""Bytes from which a file is compressed."""
MAX_BYTES = 512 << 20
"""Largest unpacked file, bytes."""
MEMORY_MB = 1024
"""Resident memory where the tests name none, MiB: what online judges allow."""
ROOM_BYTES, ROOM_RATIO = 1 << 20, 4
"""Room for a program's answer: this much, and this many times the longest right one."""
MAX_SECONDS = 600.0
"""Longest time that one program may take for all of its tests."""
_HINT = "make the tests again from the benchmark's rows"


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeCase(Case):
    """One input with the output it must lead to."""

    expected: Any
    """Standard output, or the function's value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeTests:
    """All tests of one problem, and how a program is run on them."""

    program: Program
    """Function called, setup and packages; its source is empty, for it is what a response gives."""
    limits: Limits
    """Limits of a run on all cases."""
    cases: tuple[CodeCase, ...]
    """At least one."""
    atol: float
    """Absolute tolerance of numbers; 0: the rule of the comparison."""
    tuples_equal_lists: bool
    """Whether `(1, 2)` answers `[1, 2]`."""
    compare: str
    """equal or polynomial_root."""


def parse_tests(tests: Mapping[str, Any]) -> CodeTests:
    """Checked tests. Raises DocumentError naming the field at fault."""
    kind, entry = tests.get("kind"), tests.get("entry", "")
    if kind not in ("stdin", "call"):
        raise DocumentError(f"tests: kind {kind!r}", hint="stdin or call")
    if kind == "call" and not all(part.isidentifier() for part in str(entry).split(".")):
        raise DocumentError(f"tests: entry {entry!r} names no function", hint="f, or Solution.f")
    if tests.get("compare", "equal") not in COMPARISONS:
        raise DocumentError(f"tests: compare {tests['compare']!r}", hint=", ".join(COMPARISONS))
    tagged = tests.get("literals", "json") == "tagged"
    cases = tuple(_case(case, kind, number, tagged=tagged) for number, case in enumerate(tests.get("cases") or ()))
    if not cases:
        raise DocumentError("tests: no cases", hint="a problem without tests would be solved by anything")
    seconds = float(tests.get("seconds", 6.0))
    longest = max(len(case.expected if kind == "stdin" else literals.encode(case.expected)) for case in cases)
    room = ROOM_BYTES + ROOM_RATIO * longest
    setup, scientific = str(tests.get("setup", "")), bool(tests.get("scientific", False))
    return CodeTests(
        program=Program(source="", kind=kind, entry=str(entry), setup=setup, scientific=scientific),
        limits=Limits(
            seconds=seconds,
            total_seconds=min(MAX_SECONDS, seconds * len(cases)),
            memory_mb=int(tests.get("memory_mb", MEMORY_MB)),
            output_bytes=room,
            value_bytes=room,
        ),
        cases=cases,
        atol=float(tests.get("atol", 0.0)),
        tuples_equal_lists=bool(tests.get("tuples_equal_lists", False)),
        compare=str(tests.get("compare", "equal")),
    )


def _case(case: Mapping[str, Any], kind: Kind, number: int, *, tagged: bool) -> CodeCase:
    try:
        if kind == "stdin":
            stdin, stdout = case["stdin"], case["stdout"]
            if not isinstance(stdin, str) or not isinstance(stdout, str):
                raise TypeError("stdin and stdout are texts")
            return CodeCase(stdin=stdin, expected=stdout)
        args, expected = case["args"], case["expected"]
        if tagged:
            args, expected = literals.decode(args), literals.decode(expected)
        if not isinstance(args, (list, tuple)):
            raise TypeError("args is a list")
        return CodeCase(args=tuple(args), expected=expected)
    except (KeyError, TypeError, ValueError) as error:
        raise DocumentError(f"tests: case {number}: {error!s:.200}", hint=_HINT) from error


def read_tests(path: Path, sha256: str) -> CodeTests:
    """The tests in a file. Raises DocumentError when it is missing, not the one named by its digest, or no tests."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DocumentError(f"tests {path}: {error.strerror}", hint=_HINT) from error
    found = hashlib.sha256(content).hexdigest()
    if sha256 and found != sha256:
        raise DocumentError(f"tests {path}: digest {found[:16]}, not {sha256[:16]}", hint=_HINT)
    try:
        return parse_tests(json.loads(_unpacked(content)))
    except (OSError, EOFError, ValueError, AttributeError) as error:
        if isinstance(error, DocumentError):
            raise
        raise DocumentError(f"tests {path}: {error}", hint=_HINT) from error


def _unpacked(content: bytes) -> bytes:
    if not content.startswith(b"\x1f\x8b"):
        return content
    with gzip.open(io.BytesIO(content)) as file:
        unpacked = file.read(MAX_BYTES + 1)
    if len(unpacked) > MAX_BYTES:
        raise ValueError(f"more than {MAX_BYTES} bytes")
    return unpacked


def store_tests(tests: Mapping[str, Any], folder: Path) -> tuple[Path, str]:
    """Writes checked tests to `folder/<digest>.json[.gz]` in one rename; the file, and the digest of its bytes."""
    parse_tests(tests)
    content = json.dumps(tests, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
    suffix = ".json"
    if len(content) >= COMPRESS_FROM:
        content, suffix = gzip.compress(content, compresslevel=6, mtime=0), ".json.gz"
    sha256 = hashlib.sha256(content).hexdigest()
    path = folder / f"{sha256[:32]}{suffix}"
    if not path.exists():
        durable.write(path, content)
    return path, sha256


def call_tests(entry: str, calls: Iterable[tuple[tuple[Any, ...], Any]], *, seconds: float) -> str:
    """Tests of a function in the stored format: the arguments of each call with the value expected."""
    cases = [{"args": tagged(args), "expected": tagged(value)} for args, value in calls]
    tests = {"kind": "call", "entry": entry, "seconds": seconds, "literals": "tagged", "cases": cases}
    return json.dumps(tests, sort_keys=True)


def tagged(value: object) -> Any:
    """A value as the parsed JSON that `"literals": "tagged"` announces. Raises DocumentError for other data."""
    try:
        return json.loads(literals.encode(value))
    except TypeError as error:
        raise DocumentError(f"tests: {error}", hint="arguments and results are plain data") from error


ABSOLUTE, RELATIVE = 1e-6, 1e-7
"""Tolerances where the reference is a float and the problem names none."""
# Possessive: a run of digits is read once, however long it is.
_DECIMAL = re.compile(r"[+-]?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][+-]?\d{1,4})?", re.ASCII)
# Of any size: the numbers of an answer raise no Overflow.
_ANY_SIZE = Context(prec=28, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[])
_WRONG = {
    Status.RETURNED: "wrong output",
    Status.RAISED: "raised an exception",
    Status.TIMEOUT: "time limit",
    Status.MEMORY: "memory limit",
    Status.OUTPUT_LIMIT: "output limit",
    Status.MISSING: "no result",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The result of judging a program."""

    reason: str
    """The first failing test's failure, or `all tests`."""
    failed: int | None
    """Number of the first failing test, 0-based; None where every test passed."""
    detail: str
    """The program's own last words, or the limit that was hit: for people."""

    @property
    def passed(self) -> bool:
        """Whether every test passed."""
        return self.failed is None


def judge(source: str, tests: CodeTests) -> Judgement:
    """All tests have to pass; the first that does not ends the run.

    Raises SandboxError when the sandbox failed, which says nothing about the program.
    """
    accepts = _comparison(tests)

    def fails(number: int, outcome: CaseOutcome) -> bool:
        return outcome.status != Status.RETURNED or not accepts(tests.cases[number], outcome)

    outcomes = run(replace(tests.program, source=source), tests.cases, tests.limits, stop=fails)
    for number, outcome in enumerate(outcomes):
        if fails(number, outcome):
            return Judgement(reason=_WRONG[outcome.status], failed=number, detail=outcome.detail)
    return Judgement(reason="all tests", failed=None, detail="")


def _comparison(tests: CodeTests) -> Callable[[CodeCase, CaseOutcome], bool]:
    if tests.program.kind == "stdin":
        return lambda case, outcome: same_output(outcome.stdout, case.expected, atol=tests.atol)
    if tests.compare == "polynomial_root":
        return lambda case, outcome: is_root(outcome.value, case, atol=tests.atol)
    same = partial(same_value, atol=tests.atol, tuples_equal_lists=tests.tuples_equal_lists)
    return lambda case, outcome: same(outcome.value, case.expected)


def same_value(found: Any, expected: Any, *, atol: float = 0.0, tuples_equal_lists: bool = False) -> bool:
    """Deep equality of plain data; floats in the reference allow for rounding, everywhere but in sets and keys."""
    kind, other = type(expected), type(found)
    if kind in (int, float, complex):
        return other in (int, float, complex) and _same_number(found, expected, atol)
    same = partial(same_value, atol=atol, tuples_equal_lists=tuples_equal_lists)
    if kind in (list, tuple):
        both = other in (list, tuple) if tuples_equal_lists else other is kind
        return both and len(found) == len(expected) and all(map(same, found, expected))
    if kind is dict:
        if other is not dict or len(found) != len(expected):
            return False
        keys = {_typed(key): value for key, value in found.items()}
        return all(_typed(key) in keys and same(keys[_typed(key)], value) for key, value in expected.items())
    if kind in (set, frozenset):
        return other in (set, frozenset) and {_typed(item) for item in found} == {_typed(item) for item in expected}
    return other is kind and bool(found == expected)


def _typed(key: Any) -> Any:
    """A key that `True` and `1` do not share; 1 and 1.0 do, and so do all floats that are no numbers."""
    if type(key) in (tuple, frozenset):
        return type(key), type(key)(_typed(item) for item in key)
    if key != key:
        return "no number"
    return (bool if type(key) is bool else None), key


def _same_number(found: Any, expected: Any, atol: float) -> bool:
    if found == expected or (found != found and expected != expected):
        return True
    if type(expected) is int and not atol:
        return False
    try:
        distance, size = abs(found - expected), abs(expected)
        # An infinity is near nothing but itself, whatever the tolerance.
        return math.isfinite(distance) and math.isfinite(size) and distance <= (atol or ABSOLUTE) + RELATIVE * size
    except OverflowError:
        # No float is as large; integers have exact distances.
        exact = type(found) is int is type(expected)
        return exact and abs(found - expected) <= Fraction(atol) + Fraction(RELATIVE) * abs(expected)


def same_output(found: str, expected: str, *, atol: float = 0.0) -> bool:
    """Line by line without surrounding blanks; lines that differ are equal where all their numbers are."""
    lines, wanted = found.strip().split("\n"), expected.strip().split("\n")
    pairs = zip(lines, wanted, strict=False)
    return len(lines) == len(wanted) and all(_same_line(line.strip(), want.strip(), atol) for line, want in pairs)


def _same_line(line: str, wanted: str, atol: float) -> bool:
    if line == wanted:
        return True
    words, numbers = line.split(), wanted.split()
    if len(words) != len(numbers):
        return False
    return all(_same_word(word, number, atol) for word, number in zip(words, numbers, strict=True))


def _same_word(word: str, wanted: str, atol: float) -> bool:
    if not (_DECIMAL.fullmatch(word) and _DECIMAL.fullmatch(wanted)):
        return False
    left, right = Decimal(word), Decimal(wanted)
    return left == right or (atol > 0 and _ANY_SIZE.abs(_ANY_SIZE.subtract(left, right)) <= Decimal(atol))


def is_root(found: Any, case: CodeCase, *, atol: float) -> bool:
    """Whether a value solves the case's polynomial, exactly or as nearly as the reference does."""
    if type(found) not in (int, float) or not abs(found) <= 1e30:
        return False
    (coefficients,) = case.args
    distance = abs(_polynomial(coefficients, Fraction(found)))
    if distance <= Fraction(atol):
        return True
    reference = case.expected
    known = type(reference) in (int, float) and math.isfinite(reference)
    return known and distance <= abs(_polynomial(coefficients, Fraction(reference)))


def _polynomial(coefficients: list[float], x: Fraction) -> Fraction:
    total = Fraction(0)
    for coefficient in reversed(coefficients):
        total = total * x + Fraction(coefficient)
    return total
