r"""Answer extraction: boxed answers under each preset, and the readers of the authors' evaluation.

Which box counts is the preset's. `paper`: the first closed one, for every kind of question. The paper says so of
multiple choice ("Training and Evaluation Protocol") and speaks of free-form answers as "the extracted span" without a
second rule; its free-form template is a variant of the first. `strict-last`: the last closed one, so that a box cut off
by the length limit does not hide it. `official`: the last one that opens, as in the authors' code; when that one does
not close there is no answer.

An empty box is no box: a prompt's own `\boxed{}` that a model repeats is not an answer. Responses come here without
their reasoning (`batch.check_all`), under every preset but `official`.

The last part is preset `official` alone: how the authors' evaluation reads and compares answers, defects included.
The route in `Question.grading` chooses among its benchmark-specific readers; every other route has the general one.
"""

import re
from collections import deque

from infuser_core.errors import ConfigError
from infuser_core.verifiers.parts.grading import Reason

PRESETS = ("paper", "official", "strict-last", "phrase")
"""`paper`: first boxed span, strict. `official`: the authors' extractors. `strict-last`: last closed box, own rules.
`phrase`: the same, and without a box an answer phrase."""

# Possessive throughout: a run of backslashes is read once, however long it is.
_TOKEN = re.compile(
    r"\\++boxed\s*+\{|\\++boxed\s++(?P<bare>[+-]?\d[\d,]*+(?:\.\d+)?|[A-J])(?![\w{])|(?:\\\\)*+\\.|(?:\\\\)++|[{}]",
    re.DOTALL,
)
_OPENING = re.compile(r"\\boxed\s*+\{")
_BRACE = re.compile(r"[{}]")
_ESCAPED_OR_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_WRAPPERS = (
    "text|textbf|textit|textrm|textsf|texttt|textnormal|textup|mbox|emph|underline|operatorname|boxed"
    "|mathrm|mathbf|mathit|mathsf|mathtt|boldsymbol|bm"
)
_WRAPPER = re.compile(rf"\\(?:{_WRAPPERS})\s*+\{{")


def boxed(response: str, *, preset: str) -> str | None:
    """Content of the box that counts under a preset; None when there is none. Raises ConfigError for another preset."""
    if preset == "paper":
        return first_box(response)
    if preset == "strict-last":
        return last_box(response)
    if preset == "phrase":
        return last_box(response) or announced(response)
    if preset == "official":
        return last_opened_box(response)
    raise ConfigError(f"verifiers: unknown preset {preset!r}", hint=f"presets: {', '.join(PRESETS)}")


def boxes(response: str) -> list[str]:
    """Contents of the closed, non-empty boxes in order; a box inside another closed box belongs to the outer one.

    One pass with a stack, so that unclosed braces before or inside a box cost nothing and a million of them are fine.
    """
    stack: list[int] = []
    spans: list[tuple[int, int]] = []
    for token in _TOKEN.finditer(response, _start(response)):
        mark = token.group()
        if mark == "}":
            start = stack.pop() if stack else -1
            if start >= 0:
                while spans and spans[-1][0] > start:
                    spans.pop()
                spans.append((start, token.start()))
        elif mark == "{":
            stack.append(-1)
        elif token["bare"] is not None:
            # `\boxed 7`: TeX would box one character, and nobody means that.
            spans.append(token.span("bare"))
        elif "boxed" in mark:
            stack.append(token.end())
    contents = (response[start:end].strip() for start, end in spans)
    return [content for content in contents if content]


def _start(response: str) -> int:
    """Start of the first possible box: braces before it close no box, and reasoning is most of a response."""
    start = response.find("\\boxed")
    if start < 0:
        return len(response)
    while start and response[start - 1] == "\\":
        start -= 1
    return start


def first_box(response: str) -> str | None:
    """Content of the first closed box: the paper's rule."""
    found = boxes(response)
    return found[0] if found else None


def last_box(response: str) -> str | None:
    """Content of the last closed box: a later box cut off by the length limit does not hide it."""
    found = boxes(response)
    return found[-1] if found else None


def last_opened_box(response: str) -> str | None:
    """Content of the last box that opens, nested or not, None when it never closes: the rule of the authors' code."""
    openings = deque(_OPENING.finditer(response), maxlen=1)
    if not openings:
        return None
    start, depth = openings[0].end(), 1
    for brace in _BRACE.finditer(response, start):
        depth += 1 if brace.group() == "{" else -1
        if depth == 0:
            return response[start : brace.start()].strip() or None
    return None


def unwrap(content: str) -> str:
    r"""`X` from `\text{X}` and its relatives, as often as a wrapper spans the whole string."""
    content = content.strip()
    if not _WRAPPER.match(content):
        return content
    closing = _closing_braces(content)
    left, right = 0, len(content)
    while (opening := _WRAPPER.match(content, left, right)) and closing.get(opening.end() - 1) == right - 1:
        left, right = opening.end(), right - 1
        while left < right and content[left].isspace():
            left += 1
        while left < right and content[right - 1].isspace():
            right -= 1
    return content[left:right]


def _closing_braces(content: str) -> dict[int, int]:
    """Closing place of each brace that closes, escaped braces aside."""
    pairs: dict[int, int] = {}
    stack: list[int] = []
    for token in _ESCAPED_OR_BRACE.finditer(content):
        if token.group() == "{":
            stack.append(token.start())
        elif token.group() == "}" and stack:
            pairs[stack.pop()] = token.start()
    return pairs


# An answer announced by a phrase: `answer` (also `answer choice`, `answer option`) followed by `is`, `would be`,
# `should be` or a colon; bold marks and line breaks may come between. The last phrase that holds an answer counts. For
# a choice the answer is one letter in brackets, or one capital letter ended by punctuation, a bold mark, the line, or a
# reason, so that "the answer is A natural number", "is closest" and "is 100 degrees F" name none. For anything else it
# is the formula between dollar signs that follows, or the rest of the sentence. An escaped dollar, or one before a
# digit that no other closes, is money.
_ANNOUNCED = (
    r"\banswer(?:\s++(?:choice|option))?(?:\s++(?:is|would\s++be|should\s++be)\b[ \t]*+:?+|[ \t*_]*+:)"
    r"[ \t*_]*+\n{0,2}+[ \t*_]*+"
)
_ANNOUNCED_LETTER = re.compile(
    rf"{_ANNOUNCED}(?:(?:option|choice|letter)\s++)?(?:\\text\w*\{{|\$)?"
    r"(?:\(\s*+(?P<round>[A-J])\s*+\)|\[\s*+(?P<square>[A-J])\s*+\]"
    r"|(?P<bare>[A-J])(?=[ \t]*+(?:[.,;:)}*$]|\n|\Z|because\b|since\b)))",
    re.IGNORECASE,
)
# Looked at, not taken: the sentence may hold the next phrase.
_ANNOUNCED_TEXT = re.compile(
    rf"{_ANNOUNCED}(?=\$\$?+(?P<formula>(?:\\[^\n]|[^$\\\n]){{1,512}})\$(?!\d)|\$?(?P<rest>[^\s$][^\n]{{0,512}}))",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"\.(?=\s|\Z)|\*\*")


def announced_letter(response: str) -> str | None:
    """The letter of the last phrase that names one; None when there is none."""
    found = None
    for match in _ANNOUNCED_LETTER.finditer(response):
        letter: str = match["round"] or match["square"] or match["bare"]
        # Case is ignored in words alone: a bare small letter is a word.
        if match["bare"] is None or letter.isupper():
            found = letter.upper()
    return found


def announced(response: str) -> str | None:
    """The text that the last phrase announces, without dollar signs, bold marks and the sentence's end."""
    found = None
    for match in _ANNOUNCED_TEXT.finditer(response):
        text = match["formula"] or _SENTENCE.split(match["rest"], maxsplit=1)[0]
        found = text.strip(" \t*_$") or found
    return found


_MMLU_PRO_PHRASES = (re.compile(r"answer is \(?([A-J])", re.IGNORECASE), re.compile(r"[Aa]nswer:\s*+([A-J])"))
_MMLU_PRO_LONE = re.compile(r"\b[A-J]\b")
_MEDQA_PHRASE = re.compile(r"answer(?:\s++is|:)\s*+\(?([A-D])\b", re.IGNORECASE)
_MEDQA_LONE = re.compile(r"\b[A-D]\b")
_BBEH_PHRASES = (
    re.compile(r"final answer(?: is)?[ \t]*+:?[ \t]*+(\S[^\n]*)", re.IGNORECASE),
    re.compile(r"the answer is[ \t]*+:?[ \t]*+(\S[^\n]*)", re.IGNORECASE),
    re.compile(r"\banswer[ \t]*+:[ \t]*+(\S[^\n]*)", re.IGNORECASE),
)
_DEGREE_OR_PERCENT = re.compile(r"\^\s*+\{?\s*+\\circ\s*+\}?|°|\\?%")


Reading = tuple[str, Reason]
"""A letter, or the whole box where that begins with none, and the rule that read it."""


def letter(response: str, *, route: str) -> Reading | None:
    """The answer to a multiple-choice question; None when there is none."""
    if route == "mmlu_pro":
        return _mmlu_pro(response)
    if route == "medqa":
        return _medqa(response)
    return _first_character(response)


def _first_character(response: str) -> Reading | None:
    """The last opened box: its first character where that is alphabetic, so `None of these` is N; else all of it."""
    box = last_opened_box(response)
    content = unwrap(box) if box is not None else ""
    if not content:
        return None
    if content[0].isalpha():
        return content[0].upper(), Reason.FIRST_CHARACTER
    return content, Reason.WHOLE_BOX


def _mmlu_pro(response: str) -> Reading | None:
    """Phrases before any box, and the letter need not end a word: `the answer is incorrect` is I."""
    for phrase in _MMLU_PRO_PHRASES:
        if found := phrase.search(response):
            return found.group(1).upper(), Reason.PHRASE
    return _last_lone(_MMLU_PRO_LONE, response)


def _medqa(response: str) -> Reading | None:
    """Box, phrases, then the last lone letter of the upper-cased text: `It is a disease` is A."""
    boxed = _first_character(response)
    if boxed is not None:
        return boxed
    if found := _MEDQA_PHRASE.search(response):
        return found.group(1).upper(), Reason.PHRASE
    return _last_lone(_MEDQA_LONE, response.upper())


def _last_lone(pattern: re.Pattern[str], text: str) -> Reading | None:
    found = deque(pattern.finditer(text), maxlen=1)
    return (found[0].group(), Reason.LONE_LETTER) if found else None


def bbeh(response: str) -> str | None:
    """The last opened box, else the rest of the line after an answer phrase.

    The authors' code registers this reader and its comparison under two different names, so that never both apply;
    here they do, as evidently meant.
    """
    box = last_opened_box(response)
    if box is not None:
        return box
    text = response.replace("**", "")
    # After the last occurrence of the first phrase that occurs.
    found = next((found for phrase in _BBEH_PHRASES if (found := phrase.findall(text))), None)
    return str(found[-1]).strip() if found else None


def same_text(found: str, reference: str) -> bool | None:
    """Equal after trimming and lower-casing, or as floats. None for an infinity, where the authors' code raises."""
    left, right = found.strip().lower(), reference.strip().lower()
    if left == right:
        return True
    numbers = _float(left), _float(right)
    if None in numbers:
        return False
    return None if _infinite(numbers[0]) or _infinite(numbers[1]) else numbers[0] == numbers[1]


def same_float(found: str, reference: str) -> bool:
    """Equal as floats, infinities included."""
    number = _float(found)
    return number is not None and number == _float(reference)


def same_integer(found: str, reference: str) -> bool | None:
    """Equal after cutting the decimals off: 42.7 is 42. None for an infinity, where the authors' code raises."""
    numbers = [_float(_DEGREE_OR_PERCENT.sub("", unwrap(text))) for text in (found, reference)]
    if any(number is None or number != number for number in numbers):
        return False
    return None if any(map(_infinite, numbers)) else int(numbers[0] or 0) == int(numbers[1] or 0)


def _float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _infinite(number: float | None) -> bool:
    return number in (float("inf"), float("-inf"))
