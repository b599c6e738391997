r"""Answers of BIG-Bench Extra Hard: a boxed string against a reference string, by the benchmark's fuzzy match.

Both sides: text wrappers, dollar signs and the backslash of `\_` off, `**` dropped, lower case, one space after a comma
dropped, one final period dropped, full-width letters, digits and signs as their ASCII forms; of the response the first
line alone. Then the first of these rules that holds
decides, each on its own, and its name is the reason:

- equal text;
- equal number: both are plain decimal numbers of the same value (`25`, `25.0`). In a reference a comma never belongs to
  a number, for it separates answers; an answer may group thousands (`8,749`). `nan` and `inf` are words;
- equal without parentheses: one letter, in parentheses on either side (`(A)`, `a`): some tasks' references have none;
- equal without quotes: `'` and `"` do not count;
- equal without brackets: one pair of square brackets around the whole, on either side;
- equal without question mark: one at the end, on either side.

`paper` reads the first closed box, `strict-last` the last closed one. `official` reads the last opened box or an answer
phrase, its numbers are whatever Python reads as a float, and full-width characters stay as they are.
"""

import re
from collections.abc import Callable
from functools import partial

from infuser_core.schemas import Question
from infuser_core.verifiers import exact
from infuser_core.verifiers.parts import extract
from infuser_core.verifiers.parts.extract import boxed, unwrap
from infuser_core.verifiers.parts.grading import Finding, Reason, correct, no_answer, unverified, wrong
from infuser_core.verifiers.parts.tokens import FULL_WIDTH

_WORDS = re.compile(r"\\(?:text(?:bf|it|rm|tt)?|mathrm|mathtt)\{([^{}]*)\}")
_ESCAPED = re.compile(r"\\([_$%&#])")
_LOOSER: dict[Reason, Callable[[str], str]] = {
    Reason.PARENTHESES: partial(re.compile(r"\A\(([a-z])\)\Z").sub, r"\1"),
    Reason.QUOTES: lambda text: re.sub("['\"]", "", text).strip(),
    Reason.BRACKETS: lambda text: re.sub(r"\A\[(.*)\]\Z", r"\1", text, flags=re.DOTALL).strip(),
    Reason.QUESTION_MARK: lambda text: text.removesuffix("?").rstrip(),
}
"""Form of a text in which two that are equal otherwise are compared."""


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
    if not as_float:
        found, reference = found.translate(FULL_WIDTH), reference.translate(FULL_WIDTH)
    left, right = plain(unwrap(found).strip().partition("\n")[0]), plain(reference)
    if left == right:
        return Reason.TEXT
    value = exact.number(left) if ", " not in found and "," not in right else None
    if extract.same_float(left, right) if as_float else value is not None and value == exact.number(right):
        return Reason.NUMBER
    for reason, without in _LOOSER.items():
        if without(left) == without(right) != "":
            return reason
    return None


def plain(text: str) -> str:
    """Text in the form that is compared."""
    bare = unwrap(_WORDS.sub(r"\1", text.replace("**", "").strip().strip("$")))
    bare = _ESCAPED.sub(r"\1", bare)
    return bare.lower().replace(", ", ",").strip().removesuffix(".").rstrip()
