"""Generator text to a question, or to the reason why it is none.

The last balanced JSON object outside of the reasoning is read. Route and verifier come from the document: what a model
writes about them is ignored, because a lenient verifier would be a way to earn reward.
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
    """Reasons for which a text is no question."""

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
    """A text that is no question."""

    reason: str
    """A value of Reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedQuestion:
    """A generated question that passed the checks."""

    text: str
    """Question without its choices."""
    choices: list[str]
    """Choice texts in the order written; empty when free-form."""
    ground_truth: str
    """Exact text of one choice, or the value of a free-form answer."""
    reasoning: str
    """The author's own reasoning, or empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spans:
    """Balanced JSON-like objects of a text."""

    found: list[tuple[int, int]]
    """(start, end) of the objects that lie in no other balanced object, by end."""
    truncated: bool
    """Whether the text ended inside an object."""


def parse(text: str, *, route: Route = "mcq", min_choices: int = 4, max_choices: int = 8) -> ParsedQuestion | Malformed:
    """The last object of the text that is a valid question; the reason of the very last object when none is."""
    assert 2 <= min_choices <= max_choices <= len(LETTERS), "choices must have letters"
    if not text.strip():
        return Malformed(reason=Reason.EMPTY_RESPONSE)
    content = answer_of(text)
    if not content.strip():
        return Malformed(reason=Reason.NO_JSON_CONTENT)
    if "{" not in content:
        return Malformed(reason=Reason.NO_JSON_OBJECT)
    spans = find_objects(content)
    last: Malformed | None = None
    for start, end in reversed(spans.found):
        written = content[start:end]
        if last is not None and '"question_text"' not in written:
            continue
        result = _read(written, route=route, min_choices=min_choices, max_choices=max_choices)
        if isinstance(result, ParsedQuestion):
            return result
        last = last or result
    if last is not None and not (spans.truncated and last.reason == Reason.MISSING_REQUIRED_FIELDS):
        return last
    return Malformed(reason=Reason.TRUNCATED_JSON if spans.truncated else Reason.INVALID_JSON)


def to_question(
    parsed: ParsedQuestion, *, rollout_id: str, document: Document, choice_order: ChoiceOrder = "as_written"
) -> Question:
    """The question as the solver meets it; shuffling depends on nothing but the rollout's id."""
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
    cut: bool
    """Whether the text ended first."""


def find_objects(text: str) -> Spans:
    """Balanced objects, string-aware, wherever stray braces and quotes stand before them.

    A walk from a brace ends at the first token that JSON does not allow there, backslashes outside strings included.
    Two walks alive at one character therefore disagree about being inside a string: no character is walked over more
    than twice. Braces that a dead walk saw outside strings would die at the same place and are not tried again.
    """
    found: list[tuple[int, int]] = []
    settled: set[int] = set()
    truncated, resume = False, 0
    for start in (match.start() for match in _START.finditer(text)):
        if start < resume or start in settled:
            continue
        walk = _walk(text, start)
        truncated = truncated or walk.cut
        found.extend(walk.closed)
        settled.update(walk.braces)
        resume = walk.closed[-1][1] if walk.complete else resume
    return Spans(found=_outermost(found), truncated=truncated)


def _walk(text: str, start: int) -> _Walk:
    braces, stack = [start], [start]
    closed: list[tuple[int, int]] = []
    position, before = start + 1, "{"
    while stack:
        token = _TOKEN.match(text, position)
        kind = (token.group("mark") or token.lastgroup or "") if token else ""
        if token is None or kind not in _AFTER[before]:
            cut = token is None and _UNFINISHED.match(text, position) is not None
            return _Walk(braces=braces, closed=closed, complete=False, cut=cut)
        position, before = token.end(), kind
        if kind == "{":
            stack.append(position - 1)
            braces.append(position - 1)
        elif kind == "}":
            closed.append((stack.pop(), position))
    return _Walk(braces=braces, closed=closed, complete=True, cut=False)


def _outermost(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    kept: list[tuple[int, int]] = []
    for start, end in sorted(spans, key=lambda span: (span[0], -span[1])):
        if not kept or end > kept[-1][1]:
            kept.append((start, end))
    return kept


# --- fields of an object ---------------------------------------------------------------------------------------------

_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{4}|([A-Za-z]+)|(.))", re.DOTALL)
# Commands that begin like a JSON escape for a line break or tab. \ni is left out: a line starting with "i" is likelier.
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


def read_object(written: str, **numbers: Callable[[str], Any]) -> dict[str, Any]:
    """The object that a generator wrote as JSON, halves of surrogate pairs replaced. Raises ValueError, RecursionError.

    `numbers` are json's `parse_int`, `parse_float` and `parse_constant`.
    """
    record, halves = replace_halves(json.loads(written, strict=False, **numbers))  # type: ignore[arg-type]
    announce(f"generated text {written[:60]!r}", halves)
    return dict(record)


def _read(written: str, *, route: Route, min_choices: int, max_choices: int) -> ParsedQuestion | Malformed:
    try:
        record = read_object(_ESCAPE.sub(_repair, written), parse_int=str, parse_float=str, parse_constant=str)
    except (json.JSONDecodeError, RecursionError):
        return Malformed(reason=Reason.INVALID_JSON)
    text, truth = _question_text(record.get("question_text")), record.get("ground_truth")
    if text is None or truth is None or (route == "mcq" and "choices" not in record):
        return Malformed(reason=Reason.MISSING_REQUIRED_FIELDS)
    if not text:
        return Malformed(reason=Reason.EMPTY_QUESTION)
    choices = _choices(record.get("choices")) if route == "mcq" else []
    if isinstance(choices, Reason):
        return Malformed(reason=choices)
    if route == "mcq" and not min_choices <= len(choices) <= max_choices:
        return Malformed(reason=Reason.WRONG_NUMBER_OF_CHOICES)
    shown = _without_prefixes(choices)
    if "" in shown or len(set(shown)) < len(shown):
        return Malformed(reason=Reason.EMPTY_CHOICE if "" in shown else Reason.DUPLICATE_CHOICES)
    answer = _chosen(_scalar(truth), choices, shown) if route == "mcq" else _value(_scalar(truth))
    if answer is None:
        return Malformed(reason=Reason.INVALID_GROUND_TRUTH)
    return ParsedQuestion(text=text, choices=shown, ground_truth=answer, reasoning=_reasoning(record))


def _repair(escape: re.Match[str]) -> str:
    r"""JSON escapes stay, TeX commands get the second backslash that JSON asks for."""
    written, letters, other = escape.group(), escape.group(1), escape.group(2)
    if letters is None:
        return written if other is None or other in '"\\/' else "\\" + written
    # Nobody means a backspace or a form feed: \beta and \frac are commands even where the command is unknown.
    if letters[0] in "bf":
        is_json = len(letters) == 1
    else:
        is_json = letters[0] in "nrt" and letters not in _TEX
    return written if is_json else "\\" + written


def _scalar(value: object) -> str | None:
    """Text of a string, number, boolean or one-key object; None for anything else."""
    if isinstance(value, dict) and len(value) == 1:
        value = next(iter(value.values()))
    return str(value).strip() if isinstance(value, str | bool) else None


def _question_text(value: object) -> str | None:
    parts = [_scalar(part) for part in (value if isinstance(value, list) else [value])]
    return None if None in parts else " ".join(part for part in parts if part)


def _choices(value: object) -> list[str] | Reason:
    if isinstance(value, dict):
        value = list(value.values())
    if not isinstance(value, list):
        return Reason.WRONG_NUMBER_OF_CHOICES
    texts = [_scalar(choice) for choice in value]
    return [text or "" for text in texts]


def _without_prefixes(choices: list[str]) -> list[str]:
    """Choices without "A) ", "B) ", ... where all of them carry their own letter: shuffling would contradict it."""
    marks = [_PREFIX.match(choice) for choice in choices]
    letters = [mark.group(1).upper() if mark else "" for mark in marks]
    if letters != list(LETTERS[: len(choices)]):
        return choices
    return [choice[mark.end() :].strip() if mark else choice for choice, mark in zip(choices, marks, strict=True)]


def _chosen(truth: str | None, written: list[str], shown: list[str]) -> str | None:
    """The choice that the ground truth names: exactly or but for letter case. A bare letter names nothing."""
    if not truth:
        return None
    for options in (written, shown):
        for key in (str, str.casefold):
            matches = [index for index, option in enumerate(options) if key(option) == key(truth)]
            if len(matches) == 1:
                return shown[matches[0]]
    return None


def _value(truth: str | None) -> str | None:
    return math.canonical(truth) if truth and math.parseable(truth) else None


def _reasoning(record: dict[str, object]) -> str:
    texts = (_question_text(record.get(name)) for name in _REASONING)
    return next((text for text in texts if text), "")
