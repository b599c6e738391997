"""How long prompts and responses are: inputs of a plan, by model, each with its source."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from importlib.resources import files

from infuser_core.config import CotrainSettings
from infuser_core.errors import UsageError

SHARES = ("within", "valid", "varied_dev", "varied_questions")
SPREADS = ("spread", "generator_spread")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Mean lengths in tokens, and shares of rows that go on to the next phase."""

    generator_prompt: float
    """Document and instruction."""
    dev_prompt: float
    """Dev question and instruction."""
    solver_prompt: float
    """Generated question and instruction."""
    generator_response: float
    """Generated question with its reasoning."""
    dev_response: float
    """Answer to a dev question."""
    solver_response: float
    """Answer to a generated question."""
    spread: float
    """Standard deviation of an answer's length over its mean; lengths are lognormal, cut at the limit."""
    generator_spread: float
    """The same of generated questions."""
    within: float
    """Share of the variance of lengths that is between answers to one prompt, and not between prompts."""
    valid: float
    """Share of generator rollouts that are questions."""
    varied_dev: float
    """Share of dev questions whose answers differ in reward: the others have no gradient."""
    varied_questions: float
    """The same share of generated questions."""
    micro_rows: float
    """Rows of a micro-batch on one GPU in the published schedule."""


@cache
def _table() -> list[dict[str, str]]:
    with (files(__package__) / "lengths.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def lengths_of(model: str) -> Lengths:
    """What the table says about a model, and about every model where it says nothing."""
    values = {row["quantity"]: float(row["value"]) for row in _rows(model)}
    return Lengths(**values)


def sources(model: str) -> dict[str, str]:
    """Where each quantity comes from."""
    return {row["quantity"]: row["source"] for row in _rows(model)}


def _rows(model: str) -> list[dict[str, str]]:
    return [row for row in _table() if row["model"] == "*"] + [row for row in _table() if row["model"] == model]


def changed(lengths: Lengths, assignments: Sequence[str]) -> Lengths:
    """`quantity=value` assignments applied. Raises UsageError for an unknown quantity or an impossible value."""
    known = [field.name for field in fields(Lengths)]
    for text in assignments:
        name, _, value = text.partition("=")
        if name not in known:
            raise UsageError(f"--tokens {text}: unknown quantity {name!r}", hint=f"known: {', '.join(known)}")
        lengths = replace(lengths, **{name: _number(text, name, value)})
    return lengths


def _number(text: str, name: str, value: str) -> float:
    highest = 1.0 if name in SHARES else 4.0 if name in SPREADS else 1e7
    lowest = 0.0 if name in (*SHARES, *SPREADS) else 1.0
    try:
        number = float(value)
    except ValueError:
        number = float("nan")
    if not lowest <= number <= highest:
        raise UsageError(f"--tokens {text}: {value!r} is out of range", hint=f"from {lowest:g} to {highest:g}")
    return number


def within(lengths: Lengths, settings: CotrainSettings) -> Lengths:
    """No mean beyond its limit."""
    return replace(
        lengths,
        generator_prompt=min(lengths.generator_prompt, settings.prompt_tokens),
        dev_prompt=min(lengths.dev_prompt, settings.prompt_tokens),
        solver_prompt=min(lengths.solver_prompt, settings.prompt_tokens),
        generator_response=min(lengths.generator_response, settings.generator_tokens),
        dev_response=min(lengths.dev_response, settings.solver_tokens),
        solver_response=min(lengths.solver_response, settings.solver_tokens),
    )
