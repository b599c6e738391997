"""Multiple choice: the boxed letter against the reference letter.

`paper`: the first boxed span must be one letter and nothing else, after taking off spaces, dollar signs, text wrappers,
one pair of brackets and one final period. `strict-last`: the last closed box may also say `B. because` or `Option B`.
`phrase`: the same, and without a box the last phrase that announces a letter. `official`: see
`parts/extract.py`. Only the last reads the first character of a word, or of a list of letters, as an answer. Without a
box or phrase there is no answer; a box that holds no letter is a wrong one.
"""

import re

from infuser_core.schemas import Question
from infuser_core.verifiers.parts import extract
from infuser_core.verifiers.parts.extract import Reading, announced_letter, boxed, unwrap
from infuser_core.verifiers.parts.grading import Finding, Reason, correct, grading_of, no_answer, wrong
from infuser_core.verifiers.parts.tokens import FULL_WIDTH

_BRACKETS = {"(": ")", "[": "]", "<": ">", "{": "}"}
_WITH_TEXT = re.compile(r"\(?([A-Za-z])\s*+[.):]\s*+(.*)", re.DOTALL)
_SET = re.compile(r"\\(?:text(?:bf|it|rm|sf|tt)?|math(?:bf|rm|sf)|boldsymbol)\s*+\{([^{}]*)\}")
_NAMED = re.compile(r"(?:option|choice|answer)\b(?:\s++is\b)?\s*+:?\s*+(\S.*)", re.IGNORECASE | re.DOTALL)
# The text after a letter must not name another one: `A) or B)`, `A. B`, `A: B and C`; `f(x)` and `5 m` name none.
_NEXT_CHOICE = re.compile(r"(?:\A|[\s,;])\(?[A-Ja-j]\s*+[.):]")
_LETTERS = re.compile(r"(?:\b(?:[A-Ja-j]|and|or)\b|[\s,;/&()])+")


def check(response: str, question: Question, *, preset: str = "paper") -> Finding:
    """Correct or wrong when there is a box (whatever it holds); no answer when there is none.

    A letter counts when the question has as many choices; all do where the choices are not known, and under `official`.
    Raises ConfigError for an unknown preset.
    """
    if preset == "official":
        route = grading_of(question).route
        found = extract.letter(response, route=route)
        if found is None:
            return no_answer(Reason.NO_PHRASE if route in ("mmlu_pro", "medqa") else Reason.NO_BOX)
    else:
        content = boxed(response, preset="strict-last" if preset == "phrase" else preset)
        found = None if content is None else _strict(content) if preset == "paper" else _lenient(content)
        if found is None and preset == "phrase" and (announced := announced_letter(response)):
            found = _letter(announced, Reason.PHRASE)
        if found is None:
            return no_answer() if content is None else wrong(Reason.NO_LETTER, content)
        if question.choices and ord(found[0]) - ord("A") >= len(question.choices):
            return wrong(Reason.BEYOND_CHOICES, found[0])
    letter, reason = found
    return (correct if letter == question.answer.strip().upper() else wrong)(reason, letter)


def _lenient(content: str) -> Reading | None:
    """A letter alone, or followed by punctuation and text, or after the word for it."""
    alone = _strict(content)
    if alone is not None:
        return alone
    bare = _bare(_SET.sub(r"\1", content).replace("\\ ", " ").replace("~", " "))
    named = _NAMED.fullmatch(bare)
    if named:
        inner = _strict(named.group(1))
        if inner is not None:
            return inner[0], Reason.NAMED_LETTER
        bare = named.group(1)
    with_text = _WITH_TEXT.fullmatch(bare)
    if with_text is None or _NEXT_CHOICE.search(with_text.group(2)) or _LETTERS.fullmatch(with_text.group(2)):
        return None
    return _letter(with_text.group(1), Reason.NAMED_LETTER if named else Reason.LETTER_WITH_TEXT)


def _strict(content: str) -> Reading | None:
    """One letter and nothing else."""
    bare = _bare(content)
    if len(bare) > 2 and _BRACKETS.get(bare[0]) == bare[-1]:
        return _letter(_bare(bare[1:-1]), Reason.BRACKETED_LETTER)
    return _letter(bare, Reason.LETTER)


def _bare(content: str) -> str:
    """The content without dollar signs, text wrappers and a final period, whichever is inside the other."""
    content = content.translate(FULL_WIDTH)
    for _ in range(2):
        content = unwrap(content.strip("$ \t\r\n").removesuffix(".").strip("$ \t\r\n"))
    return content


def _letter(text: str, reason: Reason) -> Reading | None:
    # `isascii` first: upper-casing turns a dotless i into I.
    letter = text.upper() if text.isascii() else text
    return (letter, reason) if len(letter) == 1 and "A" <= letter <= "Z" else None
