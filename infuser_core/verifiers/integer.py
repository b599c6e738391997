r"""Competition integers of at most three digits (AIME): `042` equals `42`, `42.7` equals nothing.

`paper` reads the first closed box, `strict-last` the last closed one; both want leading zeros, at most three digits and
no decimals but zeros; names before an equals sign (`m+n = 42`) and words or a unit that change no number
(`42 \text{ minutes}`) may stand beside it. `official` reads the last opened box as a float and cuts its decimals off.
"""

import re

from infuser_core.schemas import Question
from infuser_core.verifiers.parts import extract
from infuser_core.verifiers.parts.extract import boxed, unwrap
from infuser_core.verifiers.parts.grading import Finding, Reason, correct, no_answer, unverified, wrong
from infuser_core.verifiers.parts.tokens import FULL_WIDTH, Tokens, split, too_big
from infuser_core.verifiers.parts.tokens import tokens as tokens_of
from infuser_core.verifiers.parts.units import measure

_INTEGER = re.compile(r"0*(\d{1,3})(?:\.0+)?", re.ASCII)
_DECORATION = re.compile(r"\\?\$|\\?%|\^\s*+(?:\\circ|\{\s*+\\circ\s*+\})|\\degree|°|\\[,!;:]")


def check(response: str, question: Question, *, preset: str = "paper") -> Finding:
    """Correct when both are the same integer; unverified when the reference is no such integer.

    Raises ConfigError for an unknown preset.
    """
    box = boxed(response, preset=preset)
    if box is None:
        return no_answer()
    found = unwrap(box)
    if preset == "official":
        equal = extract.same_integer(found, question.answer)
        if equal is None:
            return unverified(Reason.INFINITE, found)
        return (correct if equal else wrong)(Reason.TRUNCATED, found)
    reference = value(question.answer)
    if reference is None:
        return unverified(Reason.NO_INTEGER, found)
    return (correct if value(found) == reference else wrong)(Reason.INTEGER, found)


def value(text: str) -> int | None:
    """The integer a text stands for, degree, percent and dollar signs aside; None when it is no such integer."""
    bare = unwrap(text.translate(FULL_WIDTH))
    match = _INTEGER.fullmatch(_DECORATION.sub("", bare).strip())
    if match:
        return int(match.group(1))
    return None if too_big(bare) else _last_side(tokens_of(bare))


def _last_side(found: Tokens) -> int | None:
    """The number behind the last equals sign; what stands before it must be names, never another claim."""
    *names, last = split(found, frozenset(["="]))
    if not all(any(token.isalpha() and len(token) < 4 for token in side) for side in names):
        return None
    measured = measure(last, declared=False, letters=True) if last else None
    if measured is None or measured.factor != 1 or len(measured.value) != 1:
        return None
    match = _INTEGER.fullmatch(measured.value[0])
    return int(match.group(1)) if match else None
