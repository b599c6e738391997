"""Parse a text that the generator wrote into a question, or into the reason why it is none.

The question is the last balanced JSON object outside of the reasoning. Route and verifier come from the document and
not from the text, because choosing a lenient verifier would be a way to earn reward.
"""

import hashlib
import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

from infuser_core.prompts.reasoning import announce, answer_of, replace_halves
from infuser_core.prompts.templates import LETTERS
from infuser_core.schemas import Document, Question
from infuser_core.seeding import seed_of
from infuser_core.verifiers import math

Route = Literal["mcq", "free_form"]
ChoiceOrder = Literal["as_written", "shuffled"]


class Reason(StrEnum):
    """Reasons why a generator's text is not a valid question."""

    EMPTY_RESPONSE = "empty_response"
    NO_JSON_CONTENT = "no_json_content"
    NO_JSON_OBJECT = "no_json_object"
    TRUNCATED_JSON = "truncated_json"
    INVALID_JSON = "invalid_json"
    MISSING_REQUIRED_FIELDS = "missing_required_fields"
    EMPTY_QUESTION = "empty_question"
    WRONG_NUMBER_OF_CHOICES = "wrong_number_of_choices"
    EMPTY_CHOICE = "empty_choice"
    DUPLICATE_CHOICES = "duplicate_choices"
    INVALID_GROUND_TRUTH = "invalid_ground_truth"


@dataclass(frozen=True, slots=True, kw_only=True)
class Malformed:
    """Result of parsing a text that is not a valid question."""

    reason: str
    """A value of Reason, or a reason of the route."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedQuestion:
    """A generated question that is well-formed."""

    text: str
    """Question without its choices."""
    choices: list[str]
    """Choice texts in the order written; empty when free-form."""
    ground_truth: str
    """Exact text of one choice, or the value of a free-form answer."""
    reasoning: str
    """The author's own reasoning, or empty."""


def parse(text: str, *, route: Route = "mcq", min_choices: int = 4, max_choices: int = 8) -> ParsedQuestion | Malformed:
    """Parse the last JSON object that is a valid question; if none is, return the reason for the last object."""
    assert 2 <= min_choices <= max_choices <= len(LETTERS), "choices must have letters"
    if not text.strip():
        return Malformed(reason=Reason.EMPTY_RESPONSE)
    content = answer_of(text)
    if not content.strip():
        return Malformed(reason=Reason.NO_JSON_CONTENT)
    if "{" not in content:
        return Malformed(reason=Reason.NO_JSON_OBJECT)
    spans, is_truncated = find_objects(content)
    last: Malformed | None = None
    for start, end in reversed(spans):
        source = content[start:end]
        if last is not None and '"question_text"' not in source:
            continue
        result = _parse_object(source, route=route, min_choices=min_choices, max_choices=max_choices)
        if isinstance(result, ParsedQuestion):
            return result
        last = last or result
    if last is not None and not (is_truncated and last.reason == Reason.MISSING_REQUIRED_FIELDS):
        return last
    return Malformed(reason=Reason.TRUNCATED_JSON if is_truncated else Reason.INVALID_JSON)


def to_question(
    parsed: ParsedQuestion, *, rollout_id: str, document: Document, choice_order: ChoiceOrder = "as_written"
) -> Question:
    """Convert a parsed question to the form that the solver sees; the rollout's id seeds the shuffle of choices."""
    choices = list(parsed.choices)
    if choice_order == "shuffled":
        random.Random(seed_of(rollout_id)).shuffle(choices)
    digest = hashlib.sha256(json.dumps([parsed.text, parsed.choices]).encode()).hexdigest()[:8]
    return Question(
        question_id=f"{rollout_id}-{digest}",
        text=parsed.text,
        choices=choices,
        answer=LETTERS[choices.index(parsed.ground_truth)] if choices else parsed.ground_truth,
        verifier="choice" if choices else "math",
        domain=document.domain,
        subdomain="",
        document_id=document.document_id,
        rollout_id=rollout_id,
        reasoning=parsed.reasoning,
    )


# --- objects in text -------------------------------------------------------------------------------------------------

_START = re.compile(r'\{(?=\s*(?:["}]|\Z))')
_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+'
_TOKEN = re.compile(
    rf'\s*(?:(?P<string>{_STRING}")|(?P<mark>[{{}}\[\]:,])'
    r"|(?P<literal>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null))",
    re.DOTALL,
)
_UNFINISHED = re.compile(rf"\s*(?:{_STRING}\\?|[\w.+-]*)\Z", re.DOTALL)
_VALUE = frozenset(["string", "literal", "{", "["])
_AFTER_VALUE = frozenset([",", "}", "]"])
_AFTER = {
    "{": frozenset(["string", "}"]),
    "[": _VALUE | {"]"},
    ":": _VALUE,
    ",": _VALUE,
    "string": _AFTER_VALUE | {":"},
    "literal": _AFTER_VALUE,
    "}": _AFTER_VALUE,
    "]": _AFTER_VALUE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Walk:
    braces: list[int]
    """Opening braces outside strings."""
    closed: list[tuple[int, int]]
    """Objects that closed, by end."""
    complete: bool
    """Whether the first brace closed."""
    truncated: bool
    """Whether the text ended first."""


def find_objects(text: str) -> tuple[list[tuple[int, int]], bool]:
    """Find balanced JSON-like objects, aware of strings, in a text that may have stray braces and quotes.

    Returns (start, end) of the outermost objects, sorted by end, and whether the text ended inside an object.
    A scan from an opening brace ends at the first token that JSON does not allow there, such as a backslash outside of
    a string. Two scans over the same character therefore disagree on whether it is inside a string, so no character
    is scanned more than twice. Opening braces that a failed scan saw outside of strings would fail at the same token
    and are not tried again.
    """
    spans: list[tuple[int, int]] = []
    walked: set[int] = set()
    truncated, resume = False, 0
    for start in (match.start() for match in _START.finditer(text)):
        if start < resume or start in walked:
            continue
        walk = _walk(text, start)
        truncated = truncated or walk.truncated
        spans.extend(walk.closed)
        walked.update(walk.braces)
        resume = walk.closed[-1][1] if walk.complete else resume
    outermost: list[tuple[int, int]] = []
    for start, end in sorted(spans, key=lambda span: (span[0], -span[1])):
        if not outermost or end > outermost[-1][1]:
            outermost.append((start, end))
    return outermost, truncated


def _walk(text: str, start: int) -> _Walk:
    braces, stack = [start], [start]
    closed: list[tuple[int, int]] = []
    position, before = start + 1, "{"
    while stack:
        token = _TOKEN.match(text, position)
        kind = (token.group("mark") or token.lastgroup or "") if token else ""
        if token is None or kind not in _AFTER[before]:
            truncated = token is None and _UNFINISHED.match(text, position) is not None
            return _Walk(braces=braces, closed=closed, complete=False, truncated=truncated)
        position, before = token.end(), kind
        if kind == "{":
            stack.append(position - 1)
            braces.append(position - 1)
        elif kind == "}":
            closed.append((stack.pop(), position))
    return _Walk(braces=braces, closed=closed, complete=True, truncated=False)


# --- fields of an object ---------------------------------------------------------------------------------------------

_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{4}|([A-Za-z]+)|(.))", re.DOTALL)
# Commands that begin like a JSON escape for a line break or tab. Not \ni: a line that starts with "i" is likelier.
_TEX_NAMES = (
    "nabla natural ncong ne nearrow neg neq newline nexists ngeq nleq nless ngtr nmid nolimits nonumber normalsize not "
    "notin nparallel nprec nsim nsubseteq nsucc nu nwarrow rangle rbrace rbrack rceil Re real rfloor rho right "
    "rightarrow rightarrows rightharpoonup rightleftharpoons rightsquigarrow rm root rule rvert rVert tan tanh tau "
    "tbinom text textbf textit textnormal textrm textsf textsc texttt textstyle tfrac theta therefore thickapprox "
    "thicksim tilde times to top triangle triangleleft triangleq triangleright"
)
_TEX = frozenset(_TEX_NAMES.split())
_PREFIX = re.compile(r"\(?([A-Za-z])[).:]\s+(?=\S)")
_REASONING = ("reasoning", "knowledge_and_reasoning_steps", "self_test_solution")


def load_object(source: str, **numbers: Callable[[str], Any]) -> dict[str, Any]:
    """Load a generator's JSON object, replacing halves of surrogate pairs. Raises ValueError or RecursionError.

    `numbers` are json's `parse_int`, `parse_float` and `parse_constant`.
    """
    record, halves = replace_halves(json.loads(source, strict=False, **numbers))  # type: ignore[arg-type]
    announce(f"generated text {source[:60]!r}", halves)
    return dict(record)


def _parse_object(source: str, *, route: Route, min_choices: int, max_choices: int) -> ParsedQuestion | Malformed:
    try:
        record = load_object(_ESCAPE.sub(_repair_escape, source), parse_int=str, parse_float=str, parse_constant=str)
    except (json.JSONDecodeError, RecursionError):
        return Malformed(reason=Reason.INVALID_JSON)
    text, truth = _question_text(record.get("question_text")), record.get("ground_truth")
    if text is None or truth is None or (route == "mcq" and "choices" not in record):
        return Malformed(reason=Reason.MISSING_REQUIRED_FIELDS)
    if not text:
        return Malformed(reason=Reason.EMPTY_QUESTION)
    choices: list[str] = []
    if route == "mcq":
        value = record["choices"]
        values = list(value.values()) if isinstance(value, dict) else value
        if not isinstance(values, list) or not min_choices <= len(values) <= max_choices:
            return Malformed(reason=Reason.WRONG_NUMBER_OF_CHOICES)
        with_prefixes = [_scalar(choice) or "" for choice in values]
        choices = _strip_prefixes(with_prefixes)
        if "" in choices or len(set(choices)) < len(choices):
            return Malformed(reason=Reason.EMPTY_CHOICE if "" in choices else Reason.DUPLICATE_CHOICES)
        answer = _match_choice(_scalar(truth), with_prefixes, choices)
    else:
        value = _scalar(truth)
        answer = math.canonical(value) if value and math.parseable(value) else None
    if answer is None:
        return Malformed(reason=Reason.INVALID_GROUND_TRUTH)
    reasonings = (_question_text(record.get(name)) for name in _REASONING)
    return ParsedQuestion(
        text=text, choices=choices, ground_truth=answer, reasoning=next((each for each in reasonings if each), "")
    )


def _repair_escape(escape: re.Match[str]) -> str:
    r"""Give a TeX command the second backslash that JSON requires; leave JSON escapes as they are."""
    text, letters, other = escape.group(), escape.group(1), escape.group(2)
    if letters is None:
        return text if other is None or other in '"\\/' else "\\" + text
    # Before letters, no backspace or form feed is intended: \beta and \frac are commands, and so are unknown names.
    if letters[0] in "bf":
        is_json = len(letters) == 1
    else:
        is_json = letters[0] in "nrt" and letters not in _TEX
    return text if is_json else "\\" + text


def _scalar(value: object) -> str | None:
    """Text of a string, number, boolean or one-key object; None for anything else."""
    if isinstance(value, dict) and len(value) == 1:
        value = next(iter(value.values()))
    return str(value).strip() if isinstance(value, str | bool) else None


def _question_text(value: object) -> str | None:
    parts = [_scalar(part) for part in (value if isinstance(value, list) else [value])]
    return None if None in parts else " ".join(part for part in parts if part)


def _strip_prefixes(choices: list[str]) -> list[str]:
    """Remove "A) ", "B) ", ... if every choice has its own letter, which would be wrong after shuffling."""
    marks = [_PREFIX.match(choice) for choice in choices]
    letters = [mark.group(1).upper() if mark else "" for mark in marks]
    if letters != list(LETTERS[: len(choices)]):
        return choices
    return [choice[mark.end() :].strip() if mark else choice for choice, mark in zip(choices, marks, strict=True)]


def _match_choice(truth: str | None, with_prefixes: list[str], choices: list[str]) -> str | None:
    """The choice that equals the ground truth, exactly or up to letter case. A bare letter matches none."""
    if not truth:
        return None
    for options in (with_prefixes, choices):
        for key in (str, str.casefold):
            matches = [index for index, option in enumerate(options) if key(option) == key(truth)]
            if len(matches) == 1:
                return choices[matches[0]]
    return None
