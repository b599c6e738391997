"""Integer expressions, evaluated without running anything: a syntax tree of a few node types, bounded in every way."""

import ast
import operator
from collections.abc import Callable, Mapping

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
