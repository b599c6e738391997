r"""Verify answers to BIG-Bench Extra Hard: compare the boxed text with the reference by the benchmark's fuzzy match.

Both sides lose text wrappers, dollar signs, the backslash of `\_`, `**`, one space after a comma and one final period;
letters become lower case, full-width characters ASCII. Only the first line of the response counts. The first of these
rules that holds decides, and its name is the reason:

- equal text;
- equal number: both are decimal numbers of the same value (`25`, `25.0`). A comma in a reference separates answers; in
  an answer it may group thousands (`8,749`). `nan` and `inf` are not numbers;
- equal without parentheses: one letter, in parentheses on either side (`(A)`, `a`);
- equal without quotes: `'` and `"` do not count;
- equal without brackets: one pair of square brackets around the whole text, on either side;
- equal without question mark: one at the end, on either side.

`paper` reads the first closed box, `strict-last` the last closed one. `official` reads the last opened box or an answer
phrase, takes everything that Python's `float` accepts as a number, and does not change full-width characters.
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
"""Further rules, each with a function that removes from both texts what the rule ignores."""


def check(response: str, question: Question, *, preset: str = "paper") -> Finding:
    """Verify one response: correct if a rule makes answer and reference equal; unverified if the reference is empty.

    Raises ConfigError for an unknown preset.
    """
    as_float = preset == "official"
    box = extract.official_bbeh(response) if as_float else boxed(response, preset=preset)
    if box is None:
        return no_answer(Reason.NO_PHRASE if as_float else Reason.NO_BOX)
    answer = unwrap(box)
    if not plain(question.answer):
        return unverified(Reason.EMPTY_REFERENCE, answer)
    reason = agreement(answer, question.answer, as_float=as_float)
    return wrong(Reason.OTHER_TEXT, answer) if reason is None else correct(reason, answer)


def agreement(answer: str, reference: str, *, as_float: bool = False) -> Reason | None:
    """The first rule under which two texts are equal, or None. `as_float`: `1e400` and `inf` are numbers, too."""
    if not as_float:
        answer, reference = answer.translate(FULL_WIDTH), reference.translate(FULL_WIDTH)
    text, reference_text = plain(unwrap(answer).strip().partition("\n")[0]), plain(reference)
    if text == reference_text:
        return Reason.TEXT
    if as_float:
        same_number = extract.same_float(text, reference_text)
    else:
        number = exact.parse_number(text) if ", " not in answer and "," not in reference_text else None
        same_number = number is not None and number == exact.parse_number(reference_text)
    if same_number:
        return Reason.NUMBER
    for reason, without in _LOOSER.items():
        if without(text) == without(reference_text) != "":
            return reason
    return None


def plain(text: str) -> str:
    """Normalise a text for comparison: lower case, without wrappers, escapes, dollar signs and a final period."""
    bare = unwrap(_WORDS.sub(r"\1", text.replace("**", "").strip().strip("$")))
    bare = _ESCAPED.sub(r"\1", bare)
    return bare.lower().replace(", ", ",").strip().removesuffix(".").rstrip()
