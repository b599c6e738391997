"""Verify multiple-choice answers: compare the boxed letter with the reference letter.

`paper`: the first LaTeX box must be one letter and nothing else, apart from spaces, dollar signs, text wrappers, one
pair of brackets and a final period. `strict-last`: the last closed box may also say `B. because` or `Option B`.
`phrase`: like `strict-last`, but if the box gives no letter, or there is none, the last phrase such as `the answer is
B` counts. `official`: see `parts/extract.py`; only this preset accepts the first character of a word or of a list of
letters. A box without a letter is wrong, not unanswered.
"""

import re

from infuser_core.schemas import Question
from infuser_core.verifiers.parts import extract
from infuser_core.verifiers.parts.extract import Reading, announced_letter, boxed, unwrap
from infuser_core.verifiers.parts.grading import Finding, Reason, correct, grading_of, no_answer, wrong
from infuser_core.verifiers.parts.tokens import FULL_WIDTH

_BRACKETS = {"(": ")", "[": "]", "<": ">", "{": "}"}
_WITH_TEXT = re.compile(r"\(?([A-Za-z])\s*+[.):]\s*+(.*)", re.DOTALL)
_TEXT_WRAPPER = re.compile(r"\\(?:text(?:bf|it|rm|sf|tt)?|math(?:bf|rm|sf)|boldsymbol)\s*+\{([^{}]*)\}")
_ANNOUNCEMENT = re.compile(r"(?:option|choice|answer)\b(?:\s++is\b)?\s*+:?\s*+(\S.*)", re.IGNORECASE | re.DOTALL)
# Text after a letter that contains a second choice: `A) or B)`, `A. B`, `A: B and C`; `f(x)` and `5 m` contain none.
_NEXT_CHOICE = re.compile(r"(?:\A|[\s,;])\(?[A-Ja-j]\s*+[.):]")
_LETTERS = re.compile(r"(?:\b(?:[A-Ja-j]|and|or)\b|[\s,;/&()])+")


def check(response: str, question: Question, *, preset: str = "paper") -> Finding:
    """Verify one response: without a box or phrase it has no answer. Raises ConfigError for an unknown preset.

    A letter beyond the question's choices is wrong, unless the choices are unknown or the preset is `official`.
    """
    if preset == "official":
        route = grading_of(question).route
        reading = extract.official_letter(response, route=route)
        if reading is None:
            return no_answer(Reason.NO_PHRASE if route in ("mmlu_pro", "medqa") else Reason.NO_BOX)
    else:
        box = boxed(response, preset="strict-last" if preset == "phrase" else preset)
        reading = None if box is None else _read_letter(box) if preset == "paper" else _read_choice(box)
        if reading is None and preset == "phrase" and (announced := announced_letter(response)):
            reading = _letter(announced, Reason.PHRASE)
        if reading is None:
            return no_answer() if box is None else wrong(Reason.NO_LETTER, box)
        if question.choices and ord(reading[0]) - ord("A") >= len(question.choices):
            return wrong(Reason.BEYOND_CHOICES, reading[0])
    letter, reason = reading
    return (correct if letter == question.answer.strip().upper() else wrong)(reason, letter)


def _read_choice(content: str) -> Reading | None:
    """Read a letter: alone, before punctuation and text (`B. because`), or after `option`, `choice` or `answer`."""
    reading = _read_letter(content)
    if reading is not None:
        return reading
    bare = _strip(_TEXT_WRAPPER.sub(r"\1", content).replace("\\ ", " ").replace("~", " "))
    announcement = _ANNOUNCEMENT.fullmatch(bare)
    if announcement:
        inner = _read_letter(announcement.group(1))
        if inner is not None:
            return inner[0], Reason.NAMED_LETTER
        bare = announcement.group(1)
    with_text = _WITH_TEXT.fullmatch(bare)
    if with_text is None or _NEXT_CHOICE.search(with_text.group(2)) or _LETTERS.fullmatch(with_text.group(2)):
        return None
    return _letter(with_text.group(1), Reason.NAMED_LETTER if announcement else Reason.LETTER_WITH_TEXT)


def _read_letter(content: str) -> Reading | None:
    """Read a text that is one letter, perhaps in brackets; None for any other text."""
    bare = _strip(content)
    if len(bare) > 2 and _BRACKETS.get(bare[0]) == bare[-1]:
        return _letter(_strip(bare[1:-1]), Reason.BRACKETED_LETTER)
    return _letter(bare, Reason.LETTER)


def _strip(content: str) -> str:
    """Strip dollar signs, text wrappers and a final period, in any order."""
    content = content.translate(FULL_WIDTH)
    for _ in range(2):
        content = unwrap(content.strip("$ \t\r\n").removesuffix(".").strip("$ \t\r\n"))
    return content


def _letter(text: str, reason: Reason) -> Reading | None:
    # `isascii` first: upper-casing turns a dotless i into I.
    letter = text.upper() if text.isascii() else text
    return (letter, reason) if len(letter) == 1 and "A" <= letter <= "Z" else None
