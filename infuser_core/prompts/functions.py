"""Python functions as questions: what a solver reads of a call, a way back, or a function to find.

A function is called `f`; arguments are written as Python literals, as they stand in the brackets of a call.
"""

from collections.abc import Iterable
from typing import Any

FIRST = "def f(x):\n    return x"
"""The function that a run begins with, as in Absolute Zero: inputs are written for it while there is no other."""


def value_asked(program: str, arguments: str) -> str:
    """Deduction: what a call returns."""
    return f"What does `f({arguments})` return? Write the value as a Python literal.\n\n{_fenced(program)}"


def arguments_asked(program: str, value: Any) -> str:
    """Abduction: arguments that lead to a value."""
    return (
        f"For which arguments does the function `f` return {value!r}? Any that do are right. Write them as Python "
        f"literals with commas between them, as they stand in the brackets of a call.\n\n{_fenced(program)}"
    )


def function_asked(calls: Iterable[tuple[str, Any]], message: str = "") -> str:
    """Induction: the function that returns the values of these calls."""
    told = f"{message}\n\n" if message else ""
    lines = "\n".join(f"f({arguments}) == {value!r}" for arguments, value in calls)
    task = "Write the Python function `f` that returns these values, and works for other arguments alike:"
    return f"{told}{task}\n\n{lines}"


def used(program: str, arguments: str) -> str:
    """A function with one call of it, as it is shown to who writes the next one."""
    return f"{program}\n# f({arguments})"


def _fenced(source: str) -> str:
    return f"```python\n{source}\n```"
