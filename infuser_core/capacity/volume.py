"""Work and files of an iteration: rows, prompts, tokens, and the bytes that a run writes."""

import csv
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from importlib.resources import files
from pathlib import Path

from infuser_core.capacity.sampling import Spread
from infuser_core.capacity.shape import Shape
from infuser_core.capacity.training import Work
from infuser_core.config.run import CotrainSettings, RunConfig
from infuser_core.config.sources import BenchmarkQuestions, FileQuestions, MixQuestions, QuestionSource
from infuser_core.errors import ConfigError, UsageError
from infuser_core.plugins import reward

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """Work of one iteration. Sampling keeps all groups, training those whose rewards differ."""

    dev: Work | None
    """Dev questions that are answered; None where nothing needs the dev set."""
    dev_trained: Work | None
    """Those of them that have a gradient."""
    written: Work | None
    """Documents that questions are written from; None where the solver trains on dev questions alone."""
    answered: Work | None
    """Generated questions that are answered."""
    scored: Work | None
    """Those that are scored; None where the reward needs no influence."""
    generator: Work | None
    """Documents the generator is updated on; None where it stays at its anchor."""
    solver: Work | None
    """Questions the solver is updated on."""
    validation: Work
    """Validation questions of one validation."""


def volume_of(config: RunConfig, lengths: Lengths) -> Volume:
    """What one iteration of the configuration amounts to. Raises ConfigError for a question file of unknown size."""
    cotrain, rows = config.cotrain, config.cotrain.group_size
    solved = _spread(lengths.solver_response, cotrain.solver_tokens, lengths.spread, lengths.within)
    to_dev = _spread(lengths.dev_response, cotrain.solver_tokens, lengths.spread, lengths.within)
    written = _spread(lengths.generator_response, cotrain.generator_tokens, lengths.generator_spread, lengths.within)
    dev = _size(config.data.dev, "data.dev")
    questions = cotrain.documents * rows * lengths.valid
    influence = cotrain.generator.update and not cotrain.dev_only and reward(cotrain.reward.name).needs_influence
    all_dev = Work(groups=dev, rows=rows, prompt=lengths.dev_prompt, response=to_dev, steps=1)
    documents = Work(groups=cotrain.documents, rows=rows, prompt=lengths.generator_prompt, response=written, steps=1)
    generated = Work(groups=questions, rows=rows, prompt=lengths.solver_prompt, response=solved, steps=1)
    dev_trained = _share(all_dev, lengths.varied_dev)
    varied = _share(generated, lengths.varied_questions)
    trained = dev_trained if cotrain.dev_only else varied
    return Volume(
        dev=all_dev if influence or cotrain.dev_only else None,
        dev_trained=dev_trained if influence else None,
        written=None if cotrain.dev_only else documents,
        answered=None if cotrain.dev_only else generated,
        scored=varied if influence else None,
        generator=_stepped(documents, cotrain.generator.minibatch) if cotrain.generator.update else None,
        solver=_stepped(trained, cotrain.solver.minibatch) if cotrain.solver.update else None,
        validation=Work(
            groups=_size(config.data.validation, "data.validation"),
            rows=cotrain.validation_samples,
            prompt=lengths.dev_prompt,
            response=to_dev,
            steps=1,
        ),
    )


def _spread(mean: float, limit: int, deviation: float, within: float) -> Spread:
    return Spread(mean=mean, deviation=deviation, limit=limit, within=within)


def _share(work: Work, share: float) -> Work:
    return Work(
        groups=work.groups * share, rows=work.rows, prompt=work.prompt, response=work.response, steps=work.steps
    )


def _stepped(work: Work, minibatch: int) -> Work:
    steps = max(1, math.ceil(work.groups / minibatch))
    return Work(groups=work.groups, rows=work.rows, prompt=work.prompt, response=work.response, steps=steps)


def _size(source: QuestionSource, key: str) -> int:
    if isinstance(source, MixQuestions):
        return sum(part.count or _size(part.source, f"{key}.parts") for part in source.parts)
    if isinstance(source, BenchmarkQuestions):
        return sum(quota.count for quota in source.quotas)
    if source.size is not None:
        return source.size
    assert isinstance(source, FileQuestions)
    try:
        text = Path(source.path).read_text(encoding="utf-8")
        lines = [line for line in text.splitlines() if line.strip()]
        return len(lines) if source.path.endswith(".jsonl") else len(json.loads(text))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{key}.path = {source.path!r} cannot be counted: {error}", hint=f"say how many: --set {key}.size=800"
        ) from error


FULL, WEIGHTS, GRADIENT = 12.0, 4.0, 4.0
"""Bytes per parameter: fp32 weights with both moments, weights alone, a kept gradient."""
KEPT_FULL, KEPT_EVERY = 2, 5
"""Retention: the last two checkpoints whole, of every fifth the weights, the selected one whole; gradients stay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """Bytes in the store."""

    checkpoint: float
    """One role's checkpoint."""
    per_iteration: float
    """Checkpoints and dev gradient of one iteration."""
    in_all: float
    """Of all iterations, anchor included, if nothing is removed."""
    after_gc: float
    """What is left of them after `infuser gc`."""


def files_of(config: RunConfig, shape: Shape) -> Files:
    """What the run writes."""
    cotrain, parameters = config.cotrain, float(shape.parameters)
    roles = int(cotrain.solver.update) + int(cotrain.generator.update)
    influence = cotrain.generator.update and not cotrain.dev_only and reward(cotrain.reward.name).needs_influence
    gradient = GRADIENT * parameters * (1 + int(cotrain.one_backward)) if influence else 0.0
    per_iteration = roles * FULL * parameters + gradient
    full = min(cotrain.iterations, KEPT_FULL)
    thinned = max(0, cotrain.iterations - full) // KEPT_EVERY
    selected = int(cotrain.iterations > full)
    kept = roles * ((full + selected) * FULL + thinned * WEIGHTS) * parameters + cotrain.iterations * gradient
    return Files(
        checkpoint=FULL * parameters,
        per_iteration=per_iteration,
        in_all=FULL * parameters + cotrain.iterations * per_iteration,
        after_gc=FULL * parameters + kept,
    )
