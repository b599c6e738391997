"""Questions about Python functions: parse the generator's text and run the function in the sandbox.

A function is called `f`; its arguments are Python literals, `3, [1, 2]`. It must return plain data that a literal can
express, and the same value in two calls.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from infuser_core.cotrain.phases.parsing import Malformed, Reason, find_objects, load_object
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
"""Maximum number of characters of the arguments and of a value."""
CALLS = 2
"""Number of calls with the same arguments, whose values must agree."""


class Failure(StrEnum):
    """Reasons why a program yields no question, in addition to those of `parsing.Reason`."""

    PROGRAM_FAILED = "program_failed"
    PROGRAM_NOT_DETERMINISTIC = "program_not_deterministic"
    NO_LITERAL_ARGUMENTS = "arguments_are_no_literals"
    NO_LITERAL_VALUE = "value_is_no_literal"
    TOO_FEW_EXAMPLES = "too_few_examples"


def parse_fields(text: str, required: str) -> Mapping[str, Any] | Malformed:
    """Parse the last JSON object, outside of reasoning, whose field `required` is a non-empty list or text."""
    if not text.strip():
        return Malformed(reason=Reason.EMPTY_RESPONSE)
    content = answer_of(text)
    if "{" not in content:
        return Malformed(reason=Reason.NO_JSON_OBJECT if content.strip() else Reason.NO_JSON_CONTENT)
    spans, is_truncated = find_objects(content)
    last = Reason.TRUNCATED_JSON if is_truncated else Reason.INVALID_JSON
    for start, end in reversed(spans):
        try:
            fields = load_object(content[start:end])
        except (ValueError, RecursionError):
            continue
        value = fields.get(required)
        if (value and isinstance(value, list)) or (isinstance(value, str) and value.strip()):
            return {name: _strip(each) for name, each in fields.items()}
        last = Reason.MISSING_REQUIRED_FIELDS
    return Malformed(reason=last)


def _strip(value: Any) -> Any:
    """The value with spaces around its texts, also in lists, removed."""
    if isinstance(value, list):
        return [_strip(each) for each in value]
    return value.strip() if isinstance(value, str) else value


def parse_arguments(text: Any) -> tuple[Any, ...] | None:
    """Parse a text that lists arguments as Python literals; None if it does not."""
    if not isinstance(text, str) or not 0 < len(text.strip()) <= LONGEST:
        return None
    value = value_of(f"({text},)")
    return value if isinstance(value, tuple) else None


def run_function(source: str, cases: Sequence[tuple[Any, ...]]) -> list[Any] | Failure:
    """Run a function in the sandbox: its value for each call, or why it failed. SandboxError if the sandbox fails."""
    program = Program(source=source, kind="call", entry=ENTRY)
    calls = [Case(args=args) for args in cases for _ in range(CALLS)]
    outcomes = run(program, calls, LIMITS, stop=lambda _, case: case.status != Status.RETURNED)
    if any(outcome.status != Status.RETURNED for outcome in outcomes):
        return Failure.PROGRAM_FAILED
    values = [outcome.value for outcome in outcomes]
    firsts = values[::CALLS]
    if any(repr(value) != repr(firsts[place // CALLS]) for place, value in enumerate(values)):
        return Failure.PROGRAM_NOT_DETERMINISTIC
    for value in firsts:
        text = repr(value)
        if value is None or len(text) > LONGEST or not same_value(value_of(text), value):
            return Failure.NO_LITERAL_VALUE
    return firsts


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionCall:
    """A function, the arguments of one call as Python literals, and the value that it returned in the sandbox."""

    program: str
    arguments: str
    value: Any


def parse_call(text: str) -> FunctionCall | Malformed:
    """Parse the function and the call in a generator's text and run the call, or say why it makes no question."""
    fields = parse_fields(text, "program")
    if isinstance(fields, Malformed):
        return fields
    args = parse_arguments(fields.get("arguments"))
    if args is None:
        return Malformed(reason=Failure.NO_LITERAL_ARGUMENTS)
    values = run_function(fields["program"], [args])
    if isinstance(values, Failure):
        return Malformed(reason=values)
    return FunctionCall(program=fields["program"], arguments=fields["arguments"], value=values[0])


def make_question(
    text: str, answer: str, verifier: str, document: Document, rollout_id: str, grading: Grading
) -> Question:
    """Build the question of a rollout; its identifier is the rollout's with a digest of the grading data."""
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
