"""HumanEval+ rows to tests, from the EvalPlus file or from the Hugging Face layout.

The EvalPlus file has inputs only: what is right is what the reference solution returns, so it is run once, alone in a
sandbox, and remembered under a digest of everything it depends on. The Hugging Face layout has inputs and results as
literals in a Python text: they are read, never run.
"""

import ast
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from infuser_core import durable
from infuser_core.errors import DocumentError
from infuser_core.sandbox.program import Case, CaseOutcome, Limits, Program, Status
from infuser_core.sandbox.run import run
from infuser_core.verifiers.parts.code_tests import tagged

SECONDS = 10.0
"""Wall clock per test; the reference solutions need less than a tenth."""
REFERENCE_LIMITS = Limits(seconds=120.0, total_seconds=1800.0, memory_mb=4096, value_bytes=256 << 20)
"""For reference solutions, which are known to end."""
FORMAT = 1
"""Version of what is remembered of a reference run."""
ROOT_ENTRY = "find_zero"
"""The one problem whose answers are checked by what they do: coefficients in, a root of the polynomial out."""
ROOT_ATOL = 1e-4
"""|poly(x)| that counts as zero, unless the row says otherwise."""
_HINT = "the row is not in the benchmark's layout"


def tests_from_evalplus(row: Mapping[str, Any], cache: Path) -> dict[str, Any]:
    """Tests of one row of the EvalPlus file: base inputs, then plus inputs, with the reference solution's outputs.

    `cache` keeps the outputs. Raises DocumentError for a row of another shape, or whose reference solution fails.
    """
    try:
        inputs = [list(args) for args in (*_list(row["base_input"]), *_list(row["plus_input"]))]
        entry, atol = str(row["entry_point"]), float(row.get("atol") or 0.0)
        reference = str(row["prompt"]) + str(row["canonical_solution"])
    except (KeyError, TypeError, ValueError) as error:
        raise DocumentError(f"{_name(row)}: {error!s:.200}", hint=_HINT) from error
    expected = reference_outputs(reference, entry, inputs, cache, name=_name(row))
    return _tests(row, inputs, expected, atol=atol)


def tests_from_hf(row: Mapping[str, Any], cache: Path | None = None) -> dict[str, Any]:
    """Tests of one row of the Hugging Face layout.

    A row that names a reference function instead of results needs `cache`, as above.
    Raises DocumentError for anything in the row's `test` that is no literal.
    """
    name = _name(row)
    try:
        check = _function(ast.parse(str(row["test"])), "check")
        inputs = [list(args) for args in _assigned(check, "inputs")]
        entry = str(row["entry_point"])
        results = _assigned(check, "results") if _has(check, "results") else None
        reference = str(row["prompt"]) + str(row["canonical_solution"])
    except KeyError as error:
        raise DocumentError(f"{name}: no field {error}", hint=_HINT) from error
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError) as error:
        raise DocumentError(f"{name}: test: {error!s:.200}", hint=_HINT) from error
    if results is None:
        if cache is None:
            raise DocumentError(f"{name}: test has no results", hint="name a cache folder: its reference will be run")
        results = reference_outputs(reference, entry, inputs, cache, name=name)
    if len(results) != len(inputs):
        raise DocumentError(f"{name}: {len(inputs)} inputs and {len(results)} results", hint=_HINT)
    return _tests(row, inputs, results, atol=_tolerance(check))


def reference_outputs(
    reference: str, entry: str, inputs: Sequence[list[Any]], cache: Path, *, name: str = "reference"
) -> list[Any]:
    """What the reference solution returns for each input, run alone in a sandbox or remembered from an earlier run."""
    asked = json.dumps([FORMAT, reference, entry, [tagged(args) for args in inputs]], sort_keys=True)
    path = cache / f"{hashlib.sha256(asked.encode()).hexdigest()[:32]}.json"
    remembered = _remembered(path, len(inputs))
    if remembered is not None:
        return remembered
    program = Program(source=reference, kind="call", entry=entry)
    outcomes = run(program, [Case(args=tuple(args)) for args in inputs], REFERENCE_LIMITS, stop=_failed).outcomes
    for number, outcome in enumerate(outcomes):
        if _failed(number, outcome):
            found = f"{outcome.status} on input {number}: {outcome.detail}"
            raise DocumentError(f"{name}: the reference solution {found}", hint="the row is damaged, or the host is")
    values = [outcome.value for outcome in outcomes]
    durable.write(path, json.dumps([tagged(value) for value in values]).encode())
    return values


def _failed(number: int, outcome: CaseOutcome) -> bool:
    return outcome.status != Status.RETURNED


def _remembered(path: Path, count: int) -> list[Any] | None:
    from infuser_core.sandbox.literals import decode

    try:
        values = [decode(value) for value in json.loads(path.read_bytes())]
    except (OSError, ValueError):
        return None
    return values if len(values) == count else None


def _tests(row: Mapping[str, Any], inputs: Sequence[list[Any]], expected: list[Any], *, atol: float) -> dict[str, Any]:
    entry = str(row["entry_point"])
    cases = [{"args": tagged(args), "expected": tagged(value)} for args, value in zip(inputs, expected, strict=True)]
    if not cases:
        raise DocumentError(f"{_name(row)}: no inputs", hint=_HINT)
    compare = "polynomial_root" if entry == ROOT_ENTRY else "equal"
    if compare == "polynomial_root":
        atol = atol or ROOT_ATOL
    common = {"seconds": SECONDS, "atol": atol, "compare": compare, "literals": "tagged"}
    return {"kind": "call", "entry": entry, "setup": preamble(str(row["prompt"]), entry), "cases": cases, **common}


def preamble(prompt: str, entry: str) -> str:
    """What the prompt defines before the function to be completed: imports and helpers that solutions may use."""
    found = re.search(rf"^(?:async\s+)?def\s+{re.escape(entry)}\b", prompt, re.MULTILINE)
    return prompt[: found.start()].rstrip() + "\n" if found and found.start() else ""


def _name(row: Mapping[str, Any]) -> str:
    return str(row.get("task_id", "?"))


def _list(value: object) -> list[Any]:
    """A list, or the JSON of one."""
    found = json.loads(value) if isinstance(value, str) else value
    if not isinstance(found, (list, tuple)):
        raise TypeError(f"inputs are {type(found).__name__}, not a list")
    return list(found)


def _function(tree: ast.Module, name: str) -> ast.FunctionDef:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return node
    raise ValueError(f"no function {name}")


def _has(check: ast.FunctionDef, name: str) -> bool:
    return any(isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name for node in check.body)


def _assigned(check: ast.FunctionDef, name: str) -> list[Any]:
    """The literal list assigned to `name`. Raises ValueError when it is none, or no literal."""
    for node in check.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == name:
            found = ast.literal_eval(_Numbers().visit(node.value))
            if not isinstance(found, list):
                raise ValueError(f"{name} is {type(found).__name__}, not a list")
            return found
    raise ValueError(f"no {name}")


class _Numbers(ast.NodeTransformer):
    """`inf` and `nan`, which the file writes as names, become the numbers that they are."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(float(node.id)) if node.id in ("inf", "nan") else node


def _tolerance(check: ast.FunctionDef) -> float:
    """The number in `assertion(candidate(*inp), exp, <number>)`."""
    for node in ast.walk(check):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "assertion" and len(node.args) == 3:
            last = node.args[2]
            if isinstance(last, ast.Constant) and isinstance(last.value, (int, float)):
                return float(last.value)
    return 0.0
