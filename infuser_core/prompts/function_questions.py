"""Texts of questions about Python functions, as the solver reads them.

A function is called `f`; arguments are Python literals, as in the brackets of a call.
"""

from collections.abc import Iterable
from typing import Any

IDENTITY_PROGRAM = "def f(x):\n    return x"
"""The function that a run begins with, as in Absolute Zero: the generator writes inputs for it until others exist."""


def ask_value(program: str, arguments: str) -> str:
    """Text of a deduction question: predict the value that a call returns."""
    return f"What does `f({arguments})` return? Write the value as a Python literal.\n\n{_fenced(program)}"


def ask_arguments(program: str, value: Any) -> str:
    """Text of an abduction question: find arguments for which the function returns `value`."""
    return (
        f"For which arguments does the function `f` return {value!r}? Any that do are right. Write them as Python "
        f"literals with commas between them, as they stand in the brackets of a call.\n\n{_fenced(program)}"
    )


def ask_function(calls: Iterable[tuple[str, Any]], message: str = "") -> str:
    """Text of an induction question: write the function that returns the values of these calls."""
    lines = "\n".join(f"f({arguments}) == {value!r}" for arguments, value in calls)
    task = "Write the Python function `f` that returns these values, and works for other arguments alike:"
    return "\n\n".join([message, task, lines] if message else [task, lines])


def render_call(program: str, arguments: str) -> str:
    """Text of a function with one call, as an example for the generator."""
    return f"{program}\n# f({arguments})"


def _fenced(source: str) -> str:
    return f"```python\n{source}\n```"
