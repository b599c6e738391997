"""Python functions as questions: the fields of a generator's text, and what a function returns in the sandbox.

A function is called `f`; its arguments are written as Python literals, `3, [1, 2]`. What it returns must be plain data
that can be written down as a literal, the same on both of two calls.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from infuser_core.cotrain.phases.parsing import Malformed, Reason, find_objects, read_object
from infuser_core.prompts.reasoning import answer_of
from infuser_core.schemas import Document, Question
from infuser_core.verifiers.arguments import LIMITS
from infuser_core.verifiers.literal import value_of
from infuser_core.verifiers.parts.code_tests import same_value
from infuser_core.verifiers.parts.grading import Grading, as_text
from infuser_core.verifiers.sandbox.program import Case, Program, Status
from infuser_core.verifiers.sandbox.run import run

ENTRY = "f"
"""Name of the function."""
LONGEST = 400
"""Characters of arguments and values, as a solver reads and writes them."""
CALLS = 2
"""Calls with the same arguments, whose values must agree."""


class Failure(StrEnum):
    """Reasons for which a program is no question, beside the reasons of `parsing.Reason`."""

    PROGRAM_FAILED = "program_failed"
    PROGRAM_NOT_DETERMINISTIC = "program_not_deterministic"
    NO_LITERAL_ARGUMENTS = "arguments_are_no_literals"
    NO_LITERAL_VALUE = "value_is_no_literal"
    TOO_FEW_EXAMPLES = "too_few_examples"


def fields_of(text: str, needed: str) -> Mapping[str, Any] | Malformed:
    """The last object of the text whose field `needed` holds something, thoughts aside."""
    if not text.strip():
        return Malformed(reason=Reason.EMPTY_RESPONSE)
    content = answer_of(text)
    if "{" not in content:
        return Malformed(reason=Reason.NO_JSON_OBJECT if content.strip() else Reason.NO_JSON_CONTENT)
    spans = find_objects(content)
    last = Reason.TRUNCATED_JSON if spans.truncated else Reason.INVALID_JSON
    for start, end in reversed(spans.found):
        try:
            found = read_object(content[start:end])
        except (ValueError, RecursionError):
            continue
        held = found.get(needed)
        if (held and isinstance(held, list)) or (isinstance(held, str) and held.strip()):
            return {name: _stripped(value) for name, value in found.items()}
        last = Reason.MISSING_REQUIRED_FIELDS
    return Malformed(reason=last)


def _stripped(value: Any) -> Any:
    """The value, its texts and those of its lists without blanks around them."""
    if isinstance(value, list):
        return [_stripped(each) for each in value]
    return value.strip() if isinstance(value, str) else value


def arguments_of(text: Any) -> tuple[Any, ...] | None:
    """The arguments that a text writes as literals; None for any other."""
    if not isinstance(text, str) or not 0 < len(text.strip()) <= LONGEST:
        return None
    found = value_of(f"({text},)")
    return found if isinstance(found, tuple) else None


def values(source: str, cases: Sequence[tuple[Any, ...]]) -> list[Any] | Failure:
    """The function's values for the arguments of each call. Raises SandboxError where the sandbox itself fails."""
    program = Program(source=source, kind="call", entry=ENTRY)
    calls = [Case(args=args) for args in cases for _ in range(CALLS)]
    outcomes = run(program, calls, LIMITS, stop=lambda _, case: case.status != Status.RETURNED)
    if any(outcome.status != Status.RETURNED for outcome in outcomes):
        return Failure.PROGRAM_FAILED
    returned = [outcome.value for outcome in outcomes]
    firsts = returned[::CALLS]
    if any(repr(one) != repr(firsts[place // CALLS]) for place, one in enumerate(returned)):
        return Failure.PROGRAM_NOT_DETERMINISTIC
    return firsts if all(map(_is_literal, firsts)) else Failure.NO_LITERAL_VALUE


def _is_literal(value: Any) -> bool:
    text = repr(value)
    return value is not None and len(text) <= LONGEST and same_value(value_of(text), value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A function, the arguments of one call, and what it returns."""

    program: str
    """Source text."""
    arguments: str
    """Python literals with commas between them."""
    value: Any
    """Its value in the sandbox."""


def call_of(text: str) -> Call | Malformed:
    """The call that a generator's text writes, or the reason why there is nothing to ask about."""
    fields = fields_of(text, "program")
    if isinstance(fields, Malformed):
        return fields
    args = arguments_of(fields.get("arguments"))
    if args is None:
        return Malformed(reason=Failure.NO_LITERAL_ARGUMENTS)
    found = values(fields["program"], [args])
    if isinstance(found, Failure):
        return Malformed(reason=found)
    return Call(program=fields["program"], arguments=fields["arguments"], value=found[0])


def asked(text: str, answer: str, verifier: str, document: Document, rollout_id: str, grading: Grading) -> Question:
    """The question of a rollout, named by it and by what is asked."""
    facts = as_text(grading)
    return Question(
        question_id=f"{rollout_id}-{hashlib.sha256(facts.encode()).hexdigest()[:8]}",
        text=text,
        choices=[],
        answer=answer,
        verifier=verifier,
        domain=document.domain,
        subdomain="",
        document_id=document.document_id,
        rollout_id=rollout_id,
        reasoning="",
        grading=facts,
    )
