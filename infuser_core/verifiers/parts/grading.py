"""Facts for grading a question's answers, and findings: the verdict on one response with the rule that decided."""

import json
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from functools import lru_cache

from infuser_core.errors import DocumentError
from infuser_core.schemas import Question, Verdict


class Reason(StrEnum):
    """Rules by which verifiers decide; statistics count findings by rule."""

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
    """Stages of the mathematics verifier; the stage that decided is the reason of a finding."""

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
    """The verdict on one response, with its reason."""

    verdict: Verdict
    extracted: str | None
    """The answer that was compared; None if the response has none."""
    reason: str
    """The rule that decided: a rule always has the same text, so that reasons can be counted."""


def correct(reason: str, extracted: str | None = None) -> Finding:
    """A finding that the answer is correct."""
    return Finding(verdict=Verdict.CORRECT, extracted=extracted, reason=reason)


def wrong(reason: str, extracted: str | None = None) -> Finding:
    """A finding that the response has an answer, or a text in its place, that is not correct."""
    return Finding(verdict=Verdict.WRONG, extracted=extracted, reason=reason)


def no_answer(reason: str = Reason.NO_BOX) -> Finding:
    """A finding that the response gives no answer at all."""
    return Finding(verdict=Verdict.NO_ANSWER, extracted=None, reason=reason)


def unverified(reason: str, extracted: str | None = None) -> Finding:
    """A finding that the verifier could not decide: a limit, an unreadable reference, a failed worker or sandbox."""
    return Finding(verdict=Verdict.UNVERIFIED, extracted=extracted, reason=reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grading:
    """Facts for grading a question. They come from its benchmark or route, never from the model that is graded."""

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
    """Further correct answers, each in the form of `Question.answer`; any one counts."""
    tests: str = ""
    """Code: JSON file with the problem's tests (see `verifiers/code.py`)."""
    tests_sha256: str = ""
    """Code: digest of that file."""
    cases: str = ""
    """Code: the tests themselves in the file's format, if there is no file."""
    program: str = ""
    """Source of the function whose arguments or value the question asks for."""
    arguments: str = ""
    """Arguments of the generator's own call of that function, as Python literals."""
    aim: str = ""
    """Accuracy of the solver at which the generator was asked to aim, as a decimal number."""


def grading_of(question: Question) -> Grading:
    """The grading facts of a question; the defaults if it has none. Raises DocumentError if they are malformed."""
    return _parse_grading(question.grading)


@lru_cache(maxsize=4096)
def _parse_grading(text: str) -> Grading:
    if not text:
        return Grading()
    try:
        facts = json.loads(text)
        return Grading(**{**facts, "also_right": tuple(facts.get("also_right", ()))})
    except (json.JSONDecodeError, TypeError, AttributeError) as error:
        names = ", ".join(field.name for field in fields(Grading))
        raise DocumentError(f"grading {text[:80]!r}: {error}", hint=f"a JSON object of {names}") from error


def as_text(grading: Grading) -> str:
    """Encode grading facts as canonical JSON: those that differ from the defaults; empty if none do."""
    facts = {name: value for name, value in asdict(grading).items() if value != getattr(Grading(), name)}
    return json.dumps(facts, sort_keys=True, separators=(",", ":"), ensure_ascii=False) if facts else ""
