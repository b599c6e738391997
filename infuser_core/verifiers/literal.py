"""Verify answers that are Python literals: compare values, ignoring spacing and quotes; floats may be rounded.

Full-width digits and signs are read as ASCII, except inside of strings. `paper` reads the first closed LaTeX box,
`strict-last` and `phrase` the last closed one, `official` the last opened one.
"""

import ast
import re
import warnings
from typing import Any

from infuser_core.schemas import Question
from infuser_core.verifiers.parts.code_tests import same_value
from infuser_core.verifiers.parts.extract import boxed, unwrap
from infuser_core.verifiers.parts.grading import Finding, Reason, correct, no_answer, unverified, wrong
from infuser_core.verifiers.parts.tokens import FULL_WIDTH

LONGEST = 10_000
"""Longest literal that is parsed, characters."""
# An unclosed string extends to the end, so that each character is read once.
_STRING = re.compile(r"""('(?:\\.?|[^'\\])*(?:'|\Z)|"(?:\\.?|[^"\\])*(?:"|\Z))|[^'"]+""", re.DOTALL)
_ESCAPED = re.compile(r"\\([{}_%&#$])")


def check(response: str, question: Question, *, preset: str = "paper") -> Finding:
    """Verify one response: correct if its literal equals the reference. Raises ConfigError for an unknown preset."""
    answer = boxed_literal(response, preset=preset)
    if answer is None:
        return no_answer()
    value, reference = value_of(answer), value_of(question.answer)
    if reference is None:
        return unverified(Reason.EMPTY_REFERENCE, answer)
    if value is None:
        return wrong("no literal", answer)
    equal = same_value(value, reference)
    return correct("equal value", answer) if equal else wrong("other value", answer)


def boxed_literal(response: str, *, preset: str) -> str | None:
    """The text of a response's box without Markdown and TeX marks; None if there is no box."""
    box = boxed(response, preset=preset)
    return None if box is None else _ESCAPED.sub(r"\1", unwrap(box).strip().strip("`").strip())


def value_of(text: str) -> Any:
    """The value of a Python literal; None for the literal None and for any other text."""
    if len(text) > LONGEST:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.literal_eval(_STRING.sub(lambda part: part[1] or part[0].translate(FULL_WIDTH), text).strip())
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return None
