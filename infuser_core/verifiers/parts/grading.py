"""Grading facts of a question, and findings: a verdict on one response with the rule that decided."""

import json
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from functools import lru_cache

from infuser_core.errors import DocumentError
from infuser_core.schemas import Question, Verdict


class Reason(StrEnum):
    """The rules of the answer side, so that they can be counted; the verdict says how each of them ended."""

    NO_BOX = "no box"
    NO_PHRASE = "no box or phrase"

    LETTER = "letter"
    BRACKETED_LETTER = "bracketed letter"
    LETTER_WITH_TEXT = "letter with text"
    NAMED_LETTER = "named letter"
    NO_LETTER = "no single letter"
    BEYOND_CHOICES = "letter beyond the choices"

    FIRST_CHARACTER = "first character"
    WHOLE_BOX = "whole box"
    PHRASE = "letter in a phrase"
    LONE_LETTER = "last lone letter"

    INTEGER = "integer"
    TRUNCATED = "truncated number"
    NO_INTEGER = "reference is no integer of three digits"
    INFINITE = "infinite number"

    TEXT = "equal text"
    NUMBER = "equal number"
    PARENTHESES = "equal without parentheses"
    QUOTES = "equal without quotes"
    BRACKETS = "equal without brackets"
    QUESTION_MARK = "equal without question mark"
    OTHER_TEXT = "other text"
    EMPTY_REFERENCE = "empty reference"


class Stage(StrEnum):
    """The stages of the mathematics verifier: the reason of its findings."""

    TEXT = "same text"
    WORDS = "words"
    EXACT = "exact value"
    TOLERANCE = "within tolerance"
    UNITS = "units"
    STRUCTURE = "structure"
    RELATION = "relation"
    SYMBOLIC = "math-verify"
    NUMERIC = "numeric"
    OPEN = "too few informative points"
    UNEVALUATED = "unevaluated"
    UNREADABLE = "unreadable answer"
    REFERENCE = "unreadable reference"
    LIMIT = "size limit"
    TIME = "time limit"
    CRASH = "worker lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A verdict with what it rests on."""

    verdict: Verdict
    """correct, wrong, no_answer or unverified; only the first is worth a reward."""
    extracted: str | None
    """The answer that was compared, or None when there was none."""
    reason: str
    """The rule that decided, in a few words: the same rule always gives the same words, so that they can be counted."""


def correct(reason: str, extracted: str | None = None) -> Finding:
    """The answer is right."""
    return Finding(verdict=Verdict.CORRECT, extracted=extracted, reason=reason)


def wrong(reason: str, extracted: str | None = None) -> Finding:
    """There is an answer, or something in its place, and it is not right."""
    return Finding(verdict=Verdict.WRONG, extracted=extracted, reason=reason)


def no_answer(reason: str = Reason.NO_BOX) -> Finding:
    """The response gives no answer at all."""
    return Finding(verdict=Verdict.NO_ANSWER, extracted=None, reason=reason)


def unverified(reason: str, extracted: str | None = None) -> Finding:
    """The verifier could not decide: a limit, an unreadable reference, a failure of the machinery."""
    return Finding(verdict=Verdict.UNVERIFIED, extracted=extracted, reason=reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grading:
    """Facts that come from the benchmark or the route, and what graders run; models choose none of the rules."""

    route: str = ""
    """Benchmark whose extractor preset `official` applies, e.g. `mmlu_pro`; empty for the general one."""
    answer_type: str = ""
    """numerical, expression, tuple, interval, equation, set or text; comma-joined where parts differ."""
    multiple: bool = False
    """The reference is a comma-joined list of answers whose order does not matter."""
    tolerance: str = ""
    """Absolute tolerance of numerical answers, comma-joined where parts differ; empty: exact."""
    unit: str = ""
    """Unit that an answer may carry."""
    also_right: tuple[str, ...] = ()
    """Further right answers, each as `Question.answer` is written: any one counts."""
    tests: str = ""
    """Code: JSON file with the problem's tests (see `verifiers/code.py`)."""
    tests_sha256: str = ""
    """Code: digest of that file."""
    cases: str = ""
    """Code: the tests themselves, in the file's format, where there is no file."""
    program: str = ""
    """Source of the function that a question about its arguments or value is about."""
    arguments: str = ""
    """Arguments that the writer called it with, as Python literals."""
    aim: str = ""
    """Accuracy of the solver, as a decimal number, that a generated question's writer was asked to aim at."""


def grading_of(question: Question) -> Grading:
    """The question's grading facts; the defaults where it has none. Raises DocumentError for another shape."""
    return _parsed(question.grading)


@lru_cache(maxsize=4096)
def _parsed(text: str) -> Grading:
    if not text:
        return Grading()
    try:
        facts = json.loads(text)
        return Grading(**{**facts, "also_right": tuple(facts.get("also_right", ()))})
    except (json.JSONDecodeError, TypeError, AttributeError) as error:
        known = ", ".join(field.name for field in fields(Grading))
        raise DocumentError(f"grading {text[:80]!r}: {error}", hint=f"a JSON object of {known}") from error


def as_text(grading: Grading) -> str:
    """The canonical JSON of what differs from the defaults; empty when nothing does."""
    changed = {name: value for name, value in asdict(grading).items() if value != getattr(Grading(), name)}
    return json.dumps(changed, sort_keys=True, separators=(",", ":"), ensure_ascii=False) if changed else ""
