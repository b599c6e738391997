"""Self-play with an executor: the generator writes a program, and running it gives the reference answer.

The deduction task of Absolute Zero: `{"program": "..."}`, and the solver is asked what comes out. Two kinds count as
programs: an integer expression (digits, `+ - * // %`, parentheses), which is evaluated here, and a Python program,
which runs twice in the sandbox and must print the same single line both times.
"""

import ast
import hashlib
import json
import operator
from collections.abc import Callable, Mapping
from enum import StrEnum

from infuser_core.config.run import QuestionSettings
from infuser_core.phases.parsing import Malformed, Reason, find_objects
from infuser_core.sandbox.program import Case, Limits, Program, Status
from infuser_core.sandbox.run import run
from infuser_core.schemas import Document, Question

LONGEST = 200
"""Characters of an expression."""
LARGEST = 10**12
"""Bound of every intermediate result."""

_BINARY: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_UNARY: Mapping[type[ast.unaryop], Callable[[int], int]] = {ast.UAdd: operator.pos, ast.USub: operator.neg}


def evaluate(text: str) -> int | None:
    """Value of an expression of integers, `+ - * // %` and parentheses; None for any other text.

    None as well where it divides by zero, is longer than 200 characters, or a number in it exceeds 10^12.
    """
    if len(text) > LONGEST:
        return None
    try:
        return _value(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return None


def _value(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return _bounded(node.value)
    if isinstance(node, ast.UnaryOp) and type(node.op) in _UNARY:
        return _bounded(_UNARY[type(node.op)](_value(node.operand)))
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        return _bounded(_BINARY[type(node.op)](_value(node.left), _value(node.right)))
    raise ValueError(f"no part of an integer expression: {type(node).__name__}")


def _bounded(value: int) -> int:
    if abs(value) > LARGEST:
        raise ValueError("beyond the bound")
    return value


TEMPLATE = "generate_program"
NEEDS_DOCUMENT = False
LIMITS = Limits(seconds=2.0, total_seconds=5.0, memory_mb=256, output_bytes=64 << 10, disk_mb=4)
LONGEST_LINE = 100
"""Characters of a line that a solver is asked to predict."""
RUNS = 2
"""Runs of a program, whose outputs must agree."""


class Failure(StrEnum):
    """Reasons for which a program is no question, beside the reasons of `parsing.Reason`."""

    PROGRAM_FAILED = "program_failed"
    PROGRAM_NOT_DETERMINISTIC = "program_not_deterministic"
    NO_SINGLE_LINE = "no_single_line_of_output"


def read(text: str, document: Document, rollout_id: str, rules: QuestionSettings) -> Question | Malformed:
    """The question about the program of a generator's text, or the reason why there is none.

    Rules on choices do not apply. Raises SandboxError where the sandbox itself fails, SandboxUnavailable where this
    host has none and a program is more than an expression.
    """
    program = written(text)
    if isinstance(program, Malformed):
        return program
    value = evaluate(program)
    answer = str(value) if value is not None else _printed(program)
    if isinstance(answer, Failure):
        return Malformed(reason=answer)
    asked = f"What is {program}?" if value is not None else _asked(program)
    return Question(
        question_id=f"{rollout_id}-{hashlib.sha256(program.encode()).hexdigest()[:8]}",
        text=asked,
        choices=[],
        answer=answer,
        verifier="exact",
        domain=document.domain,
        subdomain="",
        document_id=document.document_id,
        rollout_id=rollout_id,
        reasoning="",
    )


def written(text: str) -> str | Malformed:
    """The program in the last object of the text that has one, thoughts aside."""
    if not text.strip():
        return Malformed(reason=Reason.EMPTY_RESPONSE)
    content = text.rpartition("</think>")[2]
    if "{" not in content:
        return Malformed(reason=Reason.NO_JSON_OBJECT if content.strip() else Reason.NO_JSON_CONTENT)
    spans = find_objects(content)
    last = Reason.TRUNCATED_JSON if spans.truncated else Reason.INVALID_JSON
    for start, end in reversed(spans.found):
        try:
            program = json.loads(content[start:end], strict=False).get("program")
        except (ValueError, RecursionError):
            continue
        if isinstance(program, str) and program.strip():
            # Halves of surrogate pairs can neither be stored nor run.
            return program.encode("utf-16", "surrogatepass").decode("utf-16", "replace").strip()
        last = Reason.MISSING_REQUIRED_FIELDS
    return Malformed(reason=last)


def _printed(program: str) -> str | Failure:
    result = run(Program(source=program), [Case()] * RUNS, LIMITS, stop=lambda _, case: case.status != Status.RETURNED)
    if any(outcome.status != Status.RETURNED for outcome in result.outcomes):
        return Failure.PROGRAM_FAILED
    outputs = {outcome.stdout.strip() for outcome in result.outcomes}
    if len(outputs) > 1:
        return Failure.PROGRAM_NOT_DETERMINISTIC
    (line,) = outputs
    return line if 0 < len(line) <= LONGEST_LINE and "\n" not in line else Failure.NO_SINGLE_LINE


def _asked(program: str) -> str:
    return f"What does this Python program print?\n\n```python\n{program}\n```"
