"""Deduction, self-play with an executor: the generator writes a program, and what it returns is the reference answer.

`{"program": "...", "arguments": "..."}`, and the solver is asked what comes out. Three kinds count as programs: a
Python function `f`, called twice in the sandbox; without arguments, a program that prints one line, run twice as well;
and an integer expression (digits, `+ - * // %`, parentheses), which is evaluated here.
"""

import ast
import operator
from collections.abc import Callable, Mapping

from infuser_core.config.run import QuestionSettings
from infuser_core.phases.parsing import Malformed
from infuser_core.routes.parts.functions import Failure, asked, called, fenced, fields_of
from infuser_core.sandbox.program import Case, Program, Status
from infuser_core.sandbox.run import run
from infuser_core.schemas import Document, Question
from infuser_core.verifiers.arguments import LIMITS
from infuser_core.verifiers.parts.grading import Grading

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


TEMPLATE = "generate_deduction"
NEEDS_DOCUMENT = False
SHOWS = "show_programs"
LONGEST_LINE = 100
"""Characters of a printed line that a solver is asked to predict."""
RUNS = 2
"""Runs of a program, whose outputs must agree."""


def read(text: str, document: Document, rollout_id: str, rules: QuestionSettings) -> Question | Malformed:
    """The question about the program of a generator's text, or the reason why there is none.

    Rules on choices do not apply. Raises SandboxError where the sandbox itself fails, SandboxUnavailable where this
    host has none and a program is more than an expression.
    """
    fields = fields_of(text, "program")
    if isinstance(fields, Malformed):
        return fields
    program = fields["program"]
    if "arguments" in fields:
        return _of_function(program, fields["arguments"], document, rollout_id)
    value = evaluate(program)
    if value is not None:
        return asked(f"What is {program}?", str(value), "exact", document, rollout_id)
    answer = _printed(program)
    if isinstance(answer, Failure):
        return Malformed(reason=answer)
    return asked(f"What does this Python program print?\n\n{fenced(program)}", answer, "exact", document, rollout_id)


def _of_function(program: str, arguments: str, document: Document, rollout_id: str) -> Question | Malformed:
    value = called(program, arguments)
    if isinstance(value, Malformed):
        return value
    text = f"What does `f({arguments})` return? Write the value as a Python literal.\n\n{fenced(program)}"
    facts = Grading(program=program, arguments=arguments)
    return asked(text, repr(value), "literal", document, rollout_id, facts)


def _printed(program: str) -> str | Failure:
    result = run(Program(source=program), [Case()] * RUNS, LIMITS, stop=lambda _, case: case.status != Status.RETURNED)
    if any(outcome.status != Status.RETURNED for outcome in result.outcomes):
        return Failure.PROGRAM_FAILED
    outputs = {outcome.stdout.strip() for outcome in result.outcomes}
    if len(outputs) > 1:
        return Failure.PROGRAM_NOT_DETERMINISTIC
    (line,) = outputs
    return line if 0 < len(line) <= LONGEST_LINE and "\n" not in line else Failure.NO_SINGLE_LINE
