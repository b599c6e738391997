"""Make tests for programming benchmarks: HumanEval+ from its reference solutions, LiveCodeBench from its packed cases.

The EvalPlus file has inputs only: the right results are those of the reference solution, which runs alone in a
sandbox. The Hugging Face layout has inputs and results as literals in Python source, which is parsed, never run.

A row of LiveCodeBench has `public_test_cases` and `private_test_cases`, JSON lists of `{input, output, testtype}`; the
private list may instead be base64 of zlib of a pickled JSON string: an untrusted pickle, read without running any
of it. `metadata` is JSON with `func_name` for functional problems, whose inputs hold one JSON value per line.
"""

import ast
import base64
import binascii
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from infuser_core.errors import DocumentError
from infuser_core.verifiers.parts.code_tests import tagged
from infuser_core.verifiers.sandbox.program import Case, CaseOutcome, Limits, Program, Status
from infuser_core.verifiers.sandbox.run import run

CALL_SECONDS = 10.0
"""Wall clock per test; the reference solutions need less than a tenth."""
REFERENCE_LIMITS = Limits(seconds=120.0, total_seconds=1800.0, memory_mb=4096, value_bytes=256 << 20)
"""Limits of reference solutions, which are known to terminate."""
ROOT_ENTRY = "find_zero"
"""The one problem with several right results: given coefficients, any root of the polynomial is accepted."""
ROOT_ATOL = 1e-4
"""|poly(x)| that counts as zero, unless the row says otherwise."""
_HINT = "the row is not in the benchmark's layout, or damaged"


def tests_from_evalplus(row: Mapping[str, Any]) -> dict[str, Any]:
    """Make tests from a row of the EvalPlus file: its base and plus inputs with the reference solution's outputs.

    Raises DocumentError for a row of another shape, or whose reference solution fails.
    """
    try:
        inputs = [list(args) for name in ("base_input", "plus_input") for args in _list(row[name], "inputs")]
        entry, atol = str(row["entry_point"]), float(row.get("atol") or 0.0)
        reference = str(row["prompt"]) + str(row["canonical_solution"])
    except (KeyError, TypeError, ValueError) as error:
        raise DocumentError(f"{_name(row)}: {error!s:.200}", hint=_HINT) from error
    expected = _reference_outputs(reference, entry, inputs, _name(row))
    return _tests(row, inputs, expected, atol=atol)


def tests_from_hf(row: Mapping[str, Any]) -> dict[str, Any]:
    """Make tests from a row of the Hugging Face layout; missing results are the reference solution's.

    Raises DocumentError for anything in the row's `test` that is not a literal.
    """
    name = _name(row)
    try:
        defined = [node for node in ast.parse(str(row["test"])).body if isinstance(node, ast.FunctionDef)]
        check = next((node for node in defined if node.name == "check"), None)
        if check is None:
            raise ValueError("no function check")
        inputs = [list(args) for args in _literal_list(check, "inputs") or ()]
        entry = str(row["entry_point"])
        results = _literal_list(check, "results")
        reference = str(row["prompt"]) + str(row["canonical_solution"])
    except KeyError as error:
        raise DocumentError(f"{name}: no field {error}", hint=_HINT) from error
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError) as error:
        raise DocumentError(f"{name}: test: {error!s:.200}", hint=_HINT) from error
    if results is None:
        results = _reference_outputs(reference, entry, inputs, name)
    if len(results) != len(inputs):
        raise DocumentError(f"{name}: {len(inputs)} inputs and {len(results)} results", hint=_HINT)
    return _tests(row, inputs, results, atol=_read_tolerance(check))


def _reference_outputs(reference: str, entry: str, inputs: Sequence[list[Any]], name: str) -> list[Any]:
    """Outputs of the reference solution for each input, run alone in a sandbox."""
    program = Program(source=reference, kind="call", entry=entry)
    outcomes = run(program, [Case(args=tuple(args)) for args in inputs], REFERENCE_LIMITS, stop=_failed)
    for number, outcome in enumerate(outcomes):
        if _failed(number, outcome):
            failure = f"{outcome.status} on input {number}: {outcome.detail}"
            raise DocumentError(f"{name}: the reference solution {failure}", hint="the row is damaged, or the host is")
    return [outcome.value for outcome in outcomes]


def _failed(number: int, outcome: CaseOutcome) -> bool:
    return outcome.status != Status.RETURNED


def _tests(row: Mapping[str, Any], inputs: Sequence[list[Any]], expected: list[Any], *, atol: float) -> dict[str, Any]:
    entry = str(row["entry_point"])
    cases = [{"args": tagged(args), "expected": tagged(value)} for args, value in zip(inputs, expected, strict=True)]
    if not cases:
        raise DocumentError(f"{_name(row)}: no inputs", hint=_HINT)
    compare, least = ("polynomial_root", ROOT_ATOL) if entry == ROOT_ENTRY else ("equal", 0.0)
    common = {"seconds": CALL_SECONDS, "atol": atol or least, "compare": compare, "literals": "tagged"}
    return {"kind": "call", "entry": entry, "setup": preamble(str(row["prompt"]), entry), "cases": cases, **common}


def preamble(prompt: str, entry: str) -> str:
    """Source before the function to be completed in a prompt: imports and helpers that solutions may use."""
    match = re.search(rf"^(?:async\s+)?def\s+{re.escape(entry)}\b", prompt, re.MULTILINE)
    return prompt[: match.start()].rstrip() + "\n" if match and match.start() else ""


def _name(row: Mapping[str, Any]) -> str:
    return str(row.get("task_id", "?"))


def _list(value: object, what: str) -> list[Any]:
    """A list, or the JSON of one. Raises ValueError for anything else."""
    items = _json_of(value)
    if not isinstance(items, (list, tuple)):
        raise ValueError(f"{what} are {type(items).__name__}, not a list")
    return list(items)


def _json_of(value: object) -> Any:
    return json.loads(value) if isinstance(value, str) else value


def _literal_list(check: ast.FunctionDef, name: str) -> list[Any] | None:
    """The literal list assigned to `name`, None without one. Raises ValueError for anything but a literal list."""
    for node in check.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            literal = ast.literal_eval(_Numbers().visit(node.value))
            if not isinstance(literal, list):
                raise ValueError(f"{name} is {type(literal).__name__}, not a list")
            return literal
    return None


class _Numbers(ast.NodeTransformer):
    """Replaces the names `inf` and `nan` by their numbers."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(float(node.id)) if node.id in ("inf", "nan") else node


def _read_tolerance(check: ast.FunctionDef) -> float:
    """The number in `assertion(candidate(*inp), exp, <number>)`."""
    for node in ast.walk(check):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "assertion" and len(node.args) == 3:
            last = node.args[2]
            if isinstance(last, ast.Constant) and isinstance(last.value, (int, float)):
                return float(last.value)
    return 0.0


MAX_UNPACKED = 256 << 20
"""Largest private test list, bytes unpacked; the benchmark's own are smaller."""
CONTEST_SECONDS = 6.0
"""Wall clock per test."""
SETUP = """\
import bisect, collections, functools, heapq, itertools, math, operator, re, string, sys
from bisect import bisect, bisect_left, bisect_right, insort, insort_left, insort_right
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from functools import cache, cmp_to_key, lru_cache, partial, reduce
from heapq import heapify, heappop, heappush, heappushpop, heapreplace, merge, nlargest, nsmallest
from itertools import accumulate, chain, combinations, combinations_with_replacement, count, cycle, groupby, islice
from itertools import pairwise, permutations, product, repeat, starmap, takewhile, zip_longest
from math import ceil, comb, factorial, floor, gcd, inf, isqrt, lcm, log, log2, log10, perm, pi, prod, sqrt
from string import ascii_letters, ascii_lowercase, ascii_uppercase, digits
from typing import Any, Callable, DefaultDict, Deque, Dict, FrozenSet, Generator, Iterable, Iterator, List
from typing import NamedTuple, Optional, Sequence, Set, Tuple, TypeVar, Union
"""
"""Names that the contest platforms define for solutions; none of them hides a built-in."""
# All instructions that a pickled text needs: none of them builds objects, calls functions or repeats anything.
_TEXT_OPCODES = {"PROTO", "FRAME", "MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT", "STOP"}


def tests_from_livecode(row: Mapping[str, Any]) -> dict[str, Any]:
    """Make tests from a LiveCodeBench row: public, then private cases. Raises DocumentError naming the question."""
    name = str(row.get("question_id", "?"))
    try:
        cases = [*_list(row["public_test_cases"], "test cases"), *unpack_cases(row["private_test_cases"])]
        entry = _function_name(row, cases)
        if not cases:
            raise ValueError("no test cases")
        tests: list[dict[str, Any]] = []
        for case in cases:
            stdin, stdout = str(case["input"]), str(case["output"])
            if entry:
                args = [json.loads(line) for line in stdin.split("\n") if line.strip()]
                tests.append({"args": args, "expected": json.loads(stdout)})
            else:
                tests.append({"stdin": stdin, "stdout": stdout})
    except KeyError as error:
        raise DocumentError(f"question {name}: no field {error}", hint=_HINT) from error
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise DocumentError(f"question {name}: {error!s:.200}", hint=_HINT) from error
    kind, entry = ("call", f"Solution.{entry}") if entry else ("stdin", "")
    # The benchmark's own environment has numpy, and published solutions use it.
    common = {"setup": SETUP, "seconds": CONTEST_SECONDS, "tuples_equal_lists": True, "scientific": True}
    return {"kind": kind, "entry": entry, "cases": tests, **common}


def _function_name(row: Mapping[str, Any], cases: list[Any]) -> str:
    """The function that functional tests call, from the metadata, else the starter code; empty for programs."""
    name = str((_json_of(row.get("metadata") or "{}") or {}).get("func_name") or "")
    if name or not any(case.get("testtype") == "functional" for case in cases):
        return name
    methods = re.findall(r"^\s+def\s+(\w+)\s*\(\s*self\b", str(row.get("starter_code") or ""), re.MULTILINE)
    if len(methods) != 1:
        raise ValueError("functional tests, but neither metadata nor starter code name one function")
    return str(methods[0])


def unpack_cases(private: object) -> list[Any]:
    """Decode private cases: a JSON list, or base64(zlib(pickle(JSON text))). Raises ValueError for anything else."""
    if not isinstance(private, str) or private.lstrip()[:1] in ("[", ""):
        return _list(private, "test cases")
    try:
        packed = base64.b64decode(private, validate=True)
    except binascii.Error as error:
        raise ValueError(f"private tests are neither JSON nor base64: {error}") from error
    inflater = zlib.decompressobj()
    try:
        content = inflater.decompress(packed, MAX_UNPACKED)
    except zlib.error as error:
        raise ValueError(f"private tests do not inflate: {error}") from error
    if inflater.unconsumed_tail or not inflater.eof:
        raise ValueError(f"private tests are cut off, or larger than {MAX_UNPACKED} bytes")
    return _list(_pickled_text(content), "test cases")


def _pickled_text(content: bytes) -> str:
    """The text of a pickle that consists of one text. Its instructions are parsed, never run."""
    import pickletools

    try:
        instructions = [(opcode.name, argument) for opcode, argument, _ in pickletools.genops(content)]
    except (ValueError, IndexError, OverflowError, MemoryError) as error:
        raise ValueError(f"private tests are no plain pickle: {error}") from error
    other = [name for name, _ in instructions if name not in _TEXT_OPCODES and "UNICODE" not in name]
    texts = [argument for name, argument in instructions if "UNICODE" in name]
    if other or len(texts) != 1:
        what = f"pickle instruction {other[0]}" if other else f"{len(texts)} texts"
        raise ValueError(f"private tests hold {what}, not a text")
    return str(texts[0])
