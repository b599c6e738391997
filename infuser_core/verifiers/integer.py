r"""Verify competition answers that are integers of at most three digits (AIME): `042` equals `42`, `42.7` is wrong.

`paper` reads the first closed LaTeX box, `strict-last` the last closed one; both accept leading zeros, zeros as
decimals, names before an equals sign (`m+n = 42`), and words or a unit that do not change the number
(`42 \text{ minutes}`).
`official` reads the last opened box as a float and truncates it.
"""

import re

from infuser_core.schemas import Question
from infuser_core.verifiers.parts import extract
from infuser_core.verifiers.parts.extract import boxed, unwrap
from infuser_core.verifiers.parts.grading import Finding, Reason, correct, no_answer, unverified, wrong
from infuser_core.verifiers.parts.tokens import FULL_WIDTH, is_too_big, split_at, tokenize
from infuser_core.verifiers.parts.units import measure

_INTEGER = re.compile(r"0*(\d{1,3})(?:\.0+)?", re.ASCII)
_DECORATION = re.compile(r"\\?\$|\\?%|\^\s*+(?:\\circ|\{\s*+\\circ\s*+\})|\\degree|°|\\[,!;:]")


def check(response: str, question: Question, *, preset: str = "paper") -> Finding:
    """Verify one response: correct if its boxed integer is the reference.

    Unverified if the reference is not an integer of at most three digits. Raises ConfigError for an unknown preset.
    """
    box = boxed(response, preset=preset)
    if box is None:
        return no_answer()
    answer = unwrap(box)
    if preset == "official":
        equal = extract.same_integer(answer, question.answer)
        if equal is None:
            return unverified(Reason.INFINITE, answer)
        return (correct if equal else wrong)(Reason.TRUNCATED, answer)
    reference = parse_integer(question.answer)
    if reference is None:
        return unverified(Reason.NO_INTEGER, answer)
    return (correct if parse_integer(answer) == reference else wrong)(Reason.INTEGER, answer)


def parse_integer(text: str) -> int | None:
    """The integer of a text, without degree, percent and dollar signs; None if it is not an integer of three digits."""
    bare = unwrap(text.translate(FULL_WIDTH))
    match = _INTEGER.fullmatch(_DECORATION.sub("", bare).strip())
    if match:
        return int(match.group(1))
    if is_too_big(bare):
        return None
    # Sides before the last equals sign must contain a name: `41 = 42` is not an answer.
    *names, last = split_at(tokenize(bare), frozenset(["="]))
    if not all(any(token.isalpha() and len(token) < 4 for token in side) for side in names):
        return None
    number = measure(last, declared=False, letters=True) if last else None
    if number is None or number.factor != 1 or len(number.value) != 1:
        return None
    match = _INTEGER.fullmatch(number.value[0])
    return int(match.group(1)) if match else None
