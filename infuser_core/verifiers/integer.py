"""Competition integers of at most three digits (AIME): `042` equals `42`, `42.7` equals nothing."""

import re

from infuser_core.schemas import Question, Verdict
from infuser_core.verifiers.extract import last_box, unwrap

_INTEGER = re.compile(r"0*(\d{1,3})(?:\.0+)?", re.ASCII)
_DECORATION = re.compile(r"\\?\$|\\?%|\^\s*(?:\\circ|\{\s*\\circ\s*\})|\\degree|°|\\[,!;:]")


def extract(response: str, question: Question, *, preset: str = "paper") -> str | None:
    """Content of the last closed box without text wrappers, or None."""
    box = last_box(response)
    return None if box is None else unwrap(box)


def verify(response: str, question: Question, *, preset: str = "paper") -> Verdict:
    """Correct when both are the same integer; unverified when the reference is no such integer."""
    found = extract(response, question, preset=preset)
    if found is None:
        return Verdict.NO_ANSWER
    reference = value(question.answer)
    if reference is None:
        return Verdict.UNVERIFIED
    return Verdict.CORRECT if value(found) == reference else Verdict.WRONG


def value(text: str) -> int | None:
    """The integer a text stands for, degree, percent and dollar signs aside; None when it is no such integer."""
    match = _INTEGER.fullmatch(_DECORATION.sub("", unwrap(text)).strip())
    return int(match.group(1)) if match else None
