"""Verify short text answers: equal as trimmed lower-case text, or as decimal numbers.

`paper` reads the first closed LaTeX box, `strict-last` the last closed one. `official` is the authors' general
comparison: the last opened box, equal as text or as floats.
"""

import re
from fractions import Fraction

from infuser_core.schemas import Question
from infuser_core.verifiers.parts import extract
from infuser_core.verifiers.parts.extract import boxed, unwrap
from infuser_core.verifiers.parts.grading import Finding, Reason, correct, no_answer, unverified, wrong
from infuser_core.verifiers.parts.tokens import FULL_WIDTH

_NUMBER = re.compile(r"[+-]?(?:\d{1,64}(?:\.\d{0,64})?|\.\d{1,64})(?:e[+-]?\d{1,3})?", re.ASCII)
# Every group after the first has exactly three digits: `1,000,5` and `0,100` are lists.
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(?:,\d{3}){1,20}(?:\.\d{0,64})?", re.ASCII)


def check(response: str, question: Question, *, preset: str = "paper") -> Finding:
    """Verify one response: correct if the boxed text equals the reference. Raises ConfigError for an unknown preset."""
    box = boxed(response, preset=preset)
    if box is None:
        return no_answer()
    answer = unwrap(box)
    if preset == "official":
        equal = extract.same_text(answer, question.answer)
        if equal is None:
            return unverified(Reason.INFINITE, answer)
        return correct(Reason.TEXT, answer) if equal else wrong(Reason.OTHER_TEXT, answer)
    reason = agreement(answer, question.answer)
    return wrong(Reason.OTHER_TEXT, answer) if reason is None else correct(reason, answer)


def agreement(answer: str, reference: str) -> Reason | None:
    """The rule by which two short texts are equal, or None; `10.50` equals `10.5`, `1,000` equals `1000`."""
    text, reference_text = _plain(answer), _plain(reference)
    if text == reference_text:
        return Reason.TEXT
    value = parse_number(text)
    return Reason.NUMBER if value is not None and value == parse_number(reference_text) else None


def parse_number(text: str) -> Fraction | None:
    """The exact value of a decimal number, with or without thousands separators; None for anything else."""
    bare = text.strip().lower()
    if _THOUSANDS.fullmatch(bare):
        bare = bare.replace(",", "")
    match = _NUMBER.fullmatch(bare)
    return Fraction(match.group()) if match else None


def _plain(text: str) -> str:
    return " ".join(unwrap(text.translate(FULL_WIDTH)).lower().split())
