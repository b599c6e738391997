r"""Answers of BIG-Bench Extra Hard: a boxed string against a reference string, by the benchmark's fuzzy match.

Both sides: text wrappers, dollar signs and the backslash of `\_` off, `**` dropped, lower case, one space after a comma
dropped, one final period dropped; of the response the first line alone. Then the first of these rules that holds
decides, each on its own, and its name is the reason:

- equal text;
- equal number: both are plain decimal numbers of the same value (`25`, `25.0`). In a reference a comma never belongs to
  a number, for it separates answers; an answer may group thousands (`8,749`). `nan` and `inf` are words;
- equal without parentheses: one letter, in parentheses on either side (`(A)`, `a`): some tasks' references have none;
- equal without quotes: `'` and `"` do not count;
- equal without brackets: one pair of square brackets around the whole, on either side;
- equal without question mark: one at the end, on either side.

`paper` reads the first closed box, `strict-last` the last closed one. `official` reads the last opened box or an answer
phrase, and its numbers are whatever Python reads as a float.
"""

import re

from infuser_core.schemas import Question
from infuser_core.verifiers import exact
from infuser_core.verifiers.parts import extract
from infuser_core.verifiers.parts.extract import boxed, unwrap
from infuser_core.verifiers.parts.grading import Finding, Reason, correct, no_answer, unverified, wrong

_ONE_LETTER = re.compile(r"\(([a-z])\)")
_WORDS = re.compile(r"\\(?:text(?:bf|it|rm|tt)?|mathrm|mathtt)\{([^{}]*)\}")
_ESCAPED = re.compile(r"\\([_$%&#])")
_QUOTES = str.maketrans("", "", "'\"")


def check(response: str, question: Question, *, preset: str = "paper") -> Finding:
    """Correct when a rule makes both equal; unverified when the reference is empty.

    Raises ConfigError for an unknown preset.
    """
    as_float = preset == "official"
    answer = extract.bbeh(response) if as_float else boxed(response, preset=preset)
    if answer is None:
        return no_answer(Reason.NO_PHRASE if as_float else Reason.NO_BOX)
    found = unwrap(answer)
    if not plain(question.answer):
        return unverified(Reason.EMPTY_REFERENCE, found)
    reason = agreement(found, question.answer, as_float=as_float)
    return wrong(Reason.OTHER_TEXT, found) if reason is None else correct(reason, found)


def agreement(found: str, reference: str, *, as_float: bool = False) -> Reason | None:
    """The first rule under which the two are equal, or None. `as_float`: `1e400` and `inf` are numbers, too."""
    left, right = plain(_first_line(found)), plain(reference)
    if left == right:
        return Reason.TEXT
    if extract.same_float(left, right) if as_float else ", " not in found and _same_number(left, right):
        return Reason.NUMBER
    for reason, without in (
        (Reason.PARENTHESES, _without_parentheses),
        (Reason.QUOTES, _without_quotes),
        (Reason.BRACKETS, _without_brackets),
        (Reason.QUESTION_MARK, _without_question_mark),
    ):
        if without(left) == without(right) != "":
            return reason
    return None


def plain(text: str) -> str:
    """Text in the form that is compared."""
    bare = unwrap(_WORDS.sub(r"\1", text.replace("**", "").strip().strip("$")))
    bare = _ESCAPED.sub(r"\1", bare)
    return bare.lower().replace(", ", ",").strip().removesuffix(".").rstrip()


def _first_line(text: str) -> str:
    return unwrap(text).strip().partition("\n")[0]


def _same_number(left: str, right: str) -> bool:
    if "," in right:
        return False
    value = exact.number(left)
    return value is not None and value == exact.number(right)


def _without_parentheses(text: str) -> str:
    match = _ONE_LETTER.fullmatch(text)
    return match.group(1) if match else text


def _without_quotes(text: str) -> str:
    return text.translate(_QUOTES).strip()


def _without_brackets(text: str) -> str:
    return text[1:-1].strip() if text.startswith("[") and text.endswith("]") else text


def _without_question_mark(text: str) -> str:
    return text.removesuffix("?").rstrip()
