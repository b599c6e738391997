"""Verify answers for other programs (`infuser verify`): a JSON object per line in, a verdict out.

Unknown keys are ignored.
"""

import json
from collections.abc import Iterator, Mapping, Sequence

from infuser_core.errors import MalformedInputError
from infuser_core.evaluation.judge import JudgeRequest, check_requests, parse_request
from infuser_core.verifiers.parts.grading import Finding, unverified

_MOST_REASONS = 3
_HELP = "`infuser verify --help` shows valid lines"


class Refusals:
    """Counter of the input lines that are no valid questions, with the reasons of the first ones."""

    def __init__(self) -> None:
        self._lines = self._refused = 0
        self._first: list[str] = []

    def add(self, count: int, refused: Mapping[int, str]) -> None:
        """Count further lines; `refused` holds the reasons of invalid ones by their index."""
        reasons = list(refused.items())[: _MOST_REASONS - len(self._first)]
        self._first += [f"line {self._lines + place + 1}: {why}" for place, why in reasons]
        self._lines += count
        self._refused += len(refused)

    def check(self) -> None:
        """Raises MalformedInputError if a line is not a question, or there is no line."""
        if not self._lines:
            raise MalformedInputError("no lines on standard input", hint=_HELP)
        if self._refused:
            rest = self._refused - len(self._first)
            reasons = "; ".join([*self._first, *([f"and {rest} more"] if rest else [])])
            raise MalformedInputError(f"{self._refused} of {self._lines} lines are no questions: {reasons}", hint=_HELP)


def answer_lines(lines: Sequence[bytes], refusals: Refusals | None = None) -> Iterator[str]:
    """Verify every line; yields a JSON verdict per line, in order. A malformed line gets the verdict `unverified`."""
    requests = [_parse_line(line) for line in lines]
    if refusals:
        malformed = {place: one.reason for place, one in enumerate(requests) if isinstance(one, Finding)}
        refusals.add(len(lines), malformed)
    for finding in check_requests(requests):
        facts = {"verdict": finding.verdict.value, "extracted": finding.extracted, "reason": str(finding.reason)}
        yield json.dumps(facts, ensure_ascii=True)


def _parse_line(line: bytes) -> JudgeRequest | Finding:
    try:
        return parse_request(json.loads(line))
    except (ValueError, RecursionError) as error:
        return unverified(f"not JSON: {str(error)[:80]}")
