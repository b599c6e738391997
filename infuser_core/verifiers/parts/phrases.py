r"""Answers announced by a phrase: "the answer is (C)", "Final answer: 42", for models that write no box.

A phrase is `answer` (also `answer choice`, `answer option`) followed by `is`, `would be`, `should be` or a colon,
outside a think block; bold marks and line breaks may stand between. The last phrase that holds an answer counts. For a
choice the answer is one letter in brackets, or one capital letter ended by punctuation, a bold mark, the line, or a
reason, so that "the answer is A natural number", "is closest" and "is 100 degrees F" name none. For anything else it is
the formula between dollar signs that follows, or the rest of the sentence.
"""

import re

_ANNOUNCED = (
    r"\banswer(?:\s++(?:choice|option))?+(?:\s++(?:is|would\s++be|should\s++be)\b[ \t]*+:?+|[ \t*_]*+:)"
    r"[ \t*_]*+\n{0,2}+[ \t*_]*+"
)
_LETTER = re.compile(
    rf"{_ANNOUNCED}(?:(?:option|choice|letter)\s++)?+(?:\\text\w*\{{|\$)?+"
    r"(?:\(\s*+(?P<round>[A-J])\s*+\)|\[\s*+(?P<square>[A-J])\s*+\]"
    r"|(?P<bare>[A-J])(?=[ \t]*+(?:[.,;:)}*$]|\n|\Z|because\b|since\b)))",
    re.IGNORECASE,
)
# Looked at, not taken: the sentence may hold the next phrase.
_TEXT = re.compile(
    rf"{_ANNOUNCED}(?=\$\$?+(?P<formula>[^$\n]{{1,512}})\$|(?P<rest>[^\s$][^\n]{{0,512}}))", re.IGNORECASE
)
_SENTENCE = re.compile(r"\.(?=\s|\Z)|\*\*")


def announced_letter(response: str) -> str | None:
    """The letter of the last phrase that names one; None when there is none."""
    found = None
    for match in _LETTER.finditer(_outside(response)):
        letter: str = match["round"] or match["square"] or match["bare"]
        # Case is ignored in words alone: a bare small letter is a word.
        if match["bare"] is None or letter.isupper():
            found = letter.upper()
    return found


def announced(response: str) -> str | None:
    """The text that the last phrase announces, without dollar signs, bold marks and the sentence's end."""
    found = None
    for match in _TEXT.finditer(_outside(response)):
        text = match["formula"] or _SENTENCE.split(match["rest"], maxsplit=1)[0]
        found = text.strip(" \t*_$") or found
    return found


def _outside(response: str) -> str:
    return response.rpartition("</think>")[2]
