r"""Extract answers from responses: boxes and answer phrases, and the extractors of the authors' evaluation.

The preset selects the `\boxed{...}` that is the answer. `paper`: the first closed one, for every kind of question. The
paper says so of multiple choice ("Training and Evaluation Protocol") and names no second rule for free-form answers
("the extracted span").
`strict-last`: the last closed one, so that a box cut off by the length limit does not hide it. `official`: the last one
that opens, as in the authors' code; if it does not close there is no answer.

A box with nothing visible in it is ignored: a model that repeats the `\boxed{}` of its prompt, or a question's
`\boxed{\phantom{00}}`, gives no answer. Under every preset but `official`, `batch.check_all` removes the reasoning
before extraction.

The last part of the module is for preset `official` only: it extracts and compares answers as the authors' evaluation
does, defects included. The route in `Question.grading` selects a benchmark-specific extractor; other routes use the
general one.
"""

import re
from collections import deque
from typing import get_args

from infuser_core.errors import ConfigError
from infuser_core.schemas import Box
from infuser_core.verifiers.parts.grading import Reason

PRESETS: tuple[str, ...] = get_args(Box)

# Possessive quantifiers read a long run of backslashes only once.
_TOKEN = re.compile(
    r"\\++boxed\s*+\{|\\++boxed\s++(?P<bare>[+-]?\d[\d,]*+(?:\.\d+)?|[A-J])(?![\w{])|(?:\\\\)*+\\.|(?:\\\\)++|[{}]",
    re.DOTALL,
)
_OPENING = re.compile(r"\\boxed\s*+\{")
_BRACE = re.compile(r"[{}]")
_ESCAPED_OR_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
# Spaces, groups and phantoms, which print nothing.
_BLANK = re.compile(
    r"(?:\\[hv]?phantom\s*+\{(?:[^{}]|\{[^{}]*+\})*+\}|\\[hv]space\*?\s*+\{[^{}]*+\}|\\q?quad(?![A-Za-z])|\\[\s,;:!>]|[~\s{}])*+"
)
_WRAPPERS = (
    "text|textbf|textit|textrm|textsf|texttt|textnormal|textup|mbox|emph|underline|operatorname|boxed"
    "|mathrm|mathbf|mathit|mathsf|mathtt|boldsymbol|bm"
)
_WRAPPER = re.compile(rf"\\(?:{_WRAPPERS})\s*+\{{")


def boxed(response: str, *, preset: str) -> str | None:
    """The text of a response that a preset takes as its answer, or None. Raises ConfigError for an unknown preset."""
    if preset == "paper":
        return first_box(response)
    if preset == "strict-last":
        return last_box(response)
    if preset == "phrase":
        return last_box(response) or announced_text(response)
    if preset == "official":
        return last_opened_box(response)
    raise ConfigError(f"verifiers: unknown preset {preset!r}", hint=f"presets: {', '.join(PRESETS)}")


def boxes(response: str) -> list[str]:
    """Contents of the closed boxes that print something, in order; a box inside another closed one belongs to that.

    One pass with a stack: the time is linear, even with a million unclosed braces.
    """
    # Skip the text before the first box, often most of a response: its braces close no box.
    start = response.find("\\boxed")
    if start < 0:
        return []
    while start and response[start - 1] == "\\":
        start -= 1
    stack: list[int] = []
    spans: list[tuple[int, int]] = []
    for token in _TOKEN.finditer(response, start):
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
            # `\boxed 7`: TeX would box one character only, which is never meant.
            spans.append(token.span("bare"))
        elif "boxed" in mark:
            stack.append(token.end())
    contents = (response[start:end] for start, end in spans)
    return [content.strip() for content in contents if not _BLANK.fullmatch(content)]


def first_box(response: str) -> str | None:
    """Content of the first closed box, or None."""
    contents = boxes(response)
    return contents[0] if contents else None


def last_box(response: str) -> str | None:
    """Content of the last closed box, or None."""
    contents = boxes(response)
    return contents[-1] if contents else None


def last_opened_box(response: str) -> str | None:
    """Content of the last box that opens, nested or not; None if it does not close."""
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
    r"""Strip `\text{...}` and similar wrappers that span the whole string."""
    content = content.strip()
    if not _WRAPPER.match(content):
        return content
    closing = _closing_braces(content)
    start, end = 0, len(content)
    while (opening := _WRAPPER.match(content, start, end)) and closing.get(opening.end() - 1) == end - 1:
        start, end = opening.end(), end - 1
        while start < end and content[start].isspace():
            start += 1
        while start < end and content[end - 1].isspace():
            end -= 1
    return content[start:end]


def _closing_braces(content: str) -> dict[int, int]:
    """Index of the closing brace of each opening one; escaped braces do not count."""
    pairs: dict[int, int] = {}
    stack: list[int] = []
    for token in _ESCAPED_OR_BRACE.finditer(content):
        if token.group() == "{":
            stack.append(token.start())
        elif token.group() == "}" and stack:
            pairs[stack.pop()] = token.start()
    return pairs


# An answer phrase: `answer` (also `answer choice`, `answer option`), then `is`, `would be`, `should be` or a colon,
# perhaps with bold marks and line breaks between. The last phrase with an answer counts. For a choice the answer is one
# letter in brackets, or one capital letter before punctuation, a bold mark, the end of the line, or a reason: "the
# answer is A natural number", "is closest" and "is 100 degrees F" have none. Any other answer is a formula in dollar
# signs, or the rest of the sentence. An escaped dollar, or an unclosed one before a digit, is money. The mark of GSM8K,
# `####`, announces a number that ends its line; before anything else it is a heading of Markdown.
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
# A lookahead, as the sentence may contain the next phrase.
_ANNOUNCED_TEXT = re.compile(
    rf"(?:{_ANNOUNCED}|(?<!#)####[ \t]*+(?=\$?[+-]?[\d.,]++%?[ \t]*+(?:\n|\Z)))"
    rf"(?=\$\$?+(?P<formula>(?:\\[^\n]|[^$\\\n]){{1,512}})\$(?!\d)|\$?(?P<rest>[^\s$][^\n]{{0,512}}))",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"\.(?=\s|\Z)|\*\*")


def announced_letter(response: str) -> str | None:
    """The letter of the last answer phrase that has a letter, or None."""
    last = None
    for match in _ANNOUNCED_LETTER.finditer(response):
        letter: str = match["round"] or match["square"] or match["bare"]
        # The pattern ignores case for its words; a bare lower-case letter is a word, too.
        if match["bare"] is None or letter.isupper():
            last = letter.upper()
    return last


def announced_text(response: str) -> str | None:
    """The text of the last answer phrase without dollar signs and bold marks, or None."""
    last = None
    for match in _ANNOUNCED_TEXT.finditer(response):
        text = match["formula"] or _SENTENCE.split(match["rest"], maxsplit=1)[0]
        last = text.strip(" \t*_$") or last
    return last


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
"""A letter, or the whole box if it does not begin with one, and the rule that applied."""


def official_letter(response: str, *, route: str) -> Reading | None:
    """The answer to a multiple-choice question under preset `official`, or None."""
    if route == "mmlu_pro":
        # Phrases come before boxes, and the letter may begin a word: `the answer is incorrect` is I.
        for phrase in _MMLU_PRO_PHRASES:
            if match := phrase.search(response):
                return match.group(1).upper(), Reason.PHRASE
        return _last_lone_letter(_MMLU_PRO_LONE, response)
    reading = _first_character(response)
    if route != "medqa" or reading is not None:
        return reading
    if match := _MEDQA_PHRASE.search(response):
        return match.group(1).upper(), Reason.PHRASE
    # The text is upper-cased first, so that `It is a disease` is A.
    return _last_lone_letter(_MEDQA_LONE, response.upper())


def _first_character(response: str) -> Reading | None:
    """The first character of the last opened box if it is alphabetic (`None of these` is N), else the whole box."""
    box = last_opened_box(response)
    content = unwrap(box) if box is not None else ""
    if not content:
        return None
    if content[0].isalpha():
        return content[0].upper(), Reason.FIRST_CHARACTER
    return content, Reason.WHOLE_BOX


def _last_lone_letter(pattern: re.Pattern[str], text: str) -> Reading | None:
    matches = deque(pattern.finditer(text), maxlen=1)
    return (matches[0].group(), Reason.LONE_LETTER) if matches else None


def official_bbeh(response: str) -> str | None:
    """The last opened box, else the rest of the line after an answer phrase.

    The authors' code registers this extractor and its comparison under two different names, so that both never apply
    together; here they do, as was evidently intended.
    """
    box = last_opened_box(response)
    if box is not None:
        return box
    text = response.replace("**", "")
    # The last occurrence of the first phrase that occurs.
    matches = next((matches for phrase in _BBEH_PHRASES if (matches := phrase.findall(text))), None)
    return str(matches[-1]).strip() if matches else None


def same_text(answer: str, reference: str) -> bool | None:
    """Whether trimmed texts are equal in lower case or as floats. None for an infinity: the authors' code raises."""
    text, reference_text = answer.strip().lower(), reference.strip().lower()
    if text == reference_text:
        return True
    numbers = _parse_float(text), _parse_float(reference_text)
    if None in numbers:
        return False
    return None if _is_infinite(numbers[0]) or _is_infinite(numbers[1]) else numbers[0] == numbers[1]


def same_float(answer: str, reference: str) -> bool:
    """Whether two texts are equal as floats, infinities included."""
    number = _parse_float(answer)
    return number is not None and number == _parse_float(reference)


def same_integer(answer: str, reference: str) -> bool | None:
    """Whether two texts are equal as truncated numbers: 42.7 is 42. None for an infinity: the authors' code raises."""
    numbers = [_parse_float(_DEGREE_OR_PERCENT.sub("", unwrap(text))) for text in (answer, reference)]
    if any(number is None or number != number for number in numbers):
        return False
    return None if any(map(_is_infinite, numbers)) else int(numbers[0] or 0) == int(numbers[1] or 0)


def _parse_float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _is_infinite(number: float | None) -> bool:
    return number in (float("inf"), float("-inf"))
