"""Tests of programming problems: read and write their files, and judge programs by them.

There is one JSON file per problem, named by its own digest:

    {"kind": "stdin" | "call", "entry": "f" | "Solution.f", "setup": "...",
     "cases": [{"stdin": "...", "stdout": "..."} | {"args": [...], "expected": ...}, ...],
     "literals": "json" | "tagged", "compare": "equal" | "polynomial_root",
     "seconds": 6, "memory_mb": 1024, "atol": 0, "tuples_equal_lists": false, "scientific": false}

`scientific` lets programs import numpy. `literals` is the encoding of `args` and `expected`: plain JSON, or the tagged
JSON of `sandbox/literals.py` for tuples, sets, bytes, large integers, infinities and NaN. Files above 64 KiB are
gzip-compressed.

Values are compared outside of the sandbox, and the expected ones never enter it. Returned values are decoded from
tagged JSON, so every value has a built-in type and no comparison runs code of the program. Integers and floats compare
by value, as in the benchmarks; a boolean is not a number.
"""

import gzip
import hashlib
import io
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

from infuser_core.errors import DocumentError
from infuser_core.system import durable
from infuser_core.verifiers.sandbox import literals
from infuser_core.verifiers.sandbox.program import Case, CaseOutcome, Kind, Limits, Program, Status
from infuser_core.verifiers.sandbox.run import run

COMPARISONS = ("equal", "polynomial_root")
COMPRESS_FROM = 64 << 10
"""Smallest file that is compressed, bytes."""
MAX_BYTES = 512 << 20
"""Largest unpacked file, bytes."""
MEMORY_MB = 1024
"""Default limit of resident memory, MiB, as at online judges."""
ROOM_BYTES, ROOM_RATIO = 1 << 20, 4
"""A program's output may have this many bytes plus this many times the longest expected one."""
MAX_SECONDS = 600.0
"""Longest time of one program for all of its tests."""
_HINT = "make the tests again from the benchmark's rows"


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeCase(Case):
    """One input with the expected output: standard output, or the function's value."""

    expected: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeTests:
    """All tests of one problem, at least one, and how to run a program on them."""

    program: Program
    """A template without source."""
    limits: Limits
    """Limits of a run on all cases."""
    cases: tuple[CodeCase, ...]
    atol: float
    """Absolute tolerance of numbers; 0: the default of the comparison."""
    tuples_equal_lists: bool
    """Whether `(1, 2)` equals `[1, 2]`."""
    compare: str
    """equal or polynomial_root."""


def parse_tests(tests: Mapping[str, Any]) -> CodeTests:
    """Make the tests of one problem from its JSON. Raises DocumentError that names the wrong field."""
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
    """Read a problem's tests. Raises DocumentError if the file is missing, has another digest, or is malformed."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DocumentError(f"tests {path}: {error.strerror}", hint=_HINT) from error
    digest = hashlib.sha256(content).hexdigest()
    if sha256 and digest != sha256:
        raise DocumentError(f"tests {path}: digest {digest[:16]}, not {sha256[:16]}", hint=_HINT)
    try:
        if content.startswith(b"\x1f\x8b"):
            with gzip.open(io.BytesIO(content)) as file:
                content = file.read(MAX_BYTES + 1)
            if len(content) > MAX_BYTES:
                raise ValueError(f"more than {MAX_BYTES} bytes")
        return parse_tests(json.loads(content))
    except (OSError, EOFError, ValueError, AttributeError) as error:
        if isinstance(error, DocumentError):
            raise
        raise DocumentError(f"tests {path}: {error}", hint=_HINT) from error


def store_tests(tests: Mapping[str, Any], folder: Path) -> tuple[Path, str]:
    """Validate tests and write them to `folder/<digest>.json[.gz]`. Returns the file and the digest of its bytes."""
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
    """JSON of a function's tests in the stored format; `calls` are arguments and expected values."""
    cases = [{"args": tagged(args), "expected": tagged(value)} for args, value in calls]
    tests = {"kind": "call", "entry": entry, "seconds": seconds, "literals": "tagged", "cases": cases}
    return json.dumps(tests, sort_keys=True)


def tagged(value: object) -> Any:
    """A value as tagged JSON, parsed. Raises DocumentError if it is not plain data."""
    try:
        return json.loads(literals.encode(value))
    except TypeError as error:
        raise DocumentError(f"tests: {error}", hint="arguments and results are plain data") from error


ABSOLUTE, RELATIVE = 1e-6, 1e-7
"""Default tolerances if the reference is a float."""
# Possessive quantifiers read a long run of digits only once.
_DECIMAL = re.compile(r"[+-]?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][+-]?\d{1,4})?", re.ASCII)
# A decimal context that never overflows, for any number that a program prints.
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
class ProgramJudgement:
    """The result of running a program on its tests."""

    reason: str
    """How the first failing test failed, or `all tests`."""
    failed: int | None
    """Number of the first failing test, 0-based; None if every test passed."""
    detail: str
    """Last line of the program's error, or the limit that it exceeded; for display only."""

    @property
    def passed(self) -> bool:
        """Whether every test passed."""
        return self.failed is None


def judge(source: str, tests: CodeTests) -> ProgramJudgement:
    """Run a program on its tests up to the first failure.

    Raises SandboxError if the sandbox failed, which says nothing about the program.
    """

    def fails(number: int, outcome: CaseOutcome) -> bool:
        case = tests.cases[number]
        if outcome.status != Status.RETURNED:
            return True
        if tests.program.kind == "stdin":
            return not same_output(outcome.stdout, case.expected, atol=tests.atol)
        if tests.compare == "polynomial_root":
            return not is_root(outcome.value, case, atol=tests.atol)
        equal_lists = tests.tuples_equal_lists
        return not same_value(outcome.value, case.expected, atol=tests.atol, tuples_equal_lists=equal_lists)

    outcomes = run(replace(tests.program, source=source), tests.cases, tests.limits, stop=fails)
    for number, outcome in enumerate(outcomes):
        if fails(number, outcome):
            return ProgramJudgement(reason=_WRONG[outcome.status], failed=number, detail=outcome.detail)
    return ProgramJudgement(reason="all tests", failed=None, detail="")


def same_value(value: Any, expected: Any, *, atol: float = 0.0, tuples_equal_lists: bool = False) -> bool:
    """Whether two values of plain data are deeply equal; expected floats may be rounded, except in sets and as keys."""
    kind, other = type(expected), type(value)
    if kind in (int, float, complex):
        return other in (int, float, complex) and _same_number(value, expected, atol)
    same = partial(same_value, atol=atol, tuples_equal_lists=tuples_equal_lists)
    if kind in (list, tuple):
        both = other in (list, tuple) if tuples_equal_lists else other is kind
        return both and len(value) == len(expected) and all(map(same, value, expected))
    if kind is dict:
        if other is not dict or len(value) != len(expected):
            return False
        keys = {_typed(key): value for key, value in value.items()}
        return all(_typed(key) in keys and same(keys[_typed(key)], value) for key, value in expected.items())
    if kind in (set, frozenset):
        return other in (set, frozenset) and {_typed(item) for item in value} == {_typed(item) for item in expected}
    return other is kind and bool(value == expected)


def _typed(key: Any) -> Any:
    """Key by which set items and dict keys are compared: `True` differs from 1; 1 equals 1.0, NaN equals NaN."""
    if type(key) in (tuple, frozenset):
        return type(key), type(key)(_typed(item) for item in key)
    if key != key:
        return "no number"
    return (bool if type(key) is bool else None), key


def _same_number(value: Any, expected: Any, atol: float) -> bool:
    if value == expected or (value != value and expected != expected):
        return True
    if type(expected) is int and not atol:
        return False
    try:
        distance, size = abs(value - expected), abs(expected)
        # An infinity equals only itself, at any tolerance.
        return math.isfinite(distance) and math.isfinite(size) and distance <= (atol or ABSOLUTE) + RELATIVE * size
    except OverflowError:
        # Too large for a float; integers have exact distances.
        exact = type(value) is int is type(expected)
        return exact and abs(value - expected) <= Fraction(atol) + Fraction(RELATIVE) * abs(expected)


def same_output(output: str, expected: str, *, atol: float = 0.0) -> bool:
    """Whether two outputs are equal line by line without surrounding blanks; lines of numbers compare by value."""
    lines, expected_lines = output.strip().split("\n"), expected.strip().split("\n")
    if len(lines) != len(expected_lines):
        return False
    for line, expected_line in zip(lines, expected_lines, strict=True):
        if line.strip() == expected_line.strip():
            continue
        words, expected_words = line.split(), expected_line.split()
        if len(words) != len(expected_words):
            return False
        for word, reference in zip(words, expected_words, strict=True):
            if not (_DECIMAL.fullmatch(word) and _DECIMAL.fullmatch(reference)):
                return False
            number, target = Decimal(word), Decimal(reference)
            if number == target:
                continue
            if atol <= 0 or _ANY_SIZE.abs(_ANY_SIZE.subtract(number, target)) > Decimal(atol):
                return False
    return True


def is_root(value: Any, case: CodeCase, *, atol: float) -> bool:
    """Whether a value is a root of the case's polynomial, at least as nearly as the reference is."""
    if type(value) not in (int, float) or not abs(value) <= 1e30:
        return False
    (coefficients,) = case.args
    distance = abs(_polynomial(coefficients, Fraction(value)))
    if distance <= Fraction(atol):
        return True
    reference = case.expected
    is_known = type(reference) in (int, float) and math.isfinite(reference)
    return is_known and distance <= abs(_polynomial(coefficients, Fraction(reference)))


def _polynomial(coefficients: list[float], x: Fraction) -> Fraction:
    total = Fraction(0)
    for coefficient in reversed(coefficients):
        total = total * x + Fraction(coefficient)
    return total
