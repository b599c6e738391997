"""Work and files of an iteration: rows, prompts, tokens, and the bytes that a run writes."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cache

from infuser_core.capacity.sampling import Spread
from infuser_core.capacity.training import Work
from infuser_core.config import shipped
from infuser_core.config.run import CotrainSettings, RunConfig
from infuser_core.config.sources import BenchmarkQuestions, FileQuestions, MixQuestions, QuestionSource
from infuser_core.errors import ConfigError, UsageError
from infuser_core.memory.hardware import table
from infuser_core.memory.shape import Shape
from infuser_core.plugins import reward

SHARES = ("valid", "varied_dev", "varied_questions")
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
    valid: float
    """Share of generator rollouts that are questions."""
    varied_dev: float
    """Share of dev questions whose answers differ in reward: the others have no gradient."""
    varied_questions: float
    """The same share of generated questions."""


def lengths_of(model: str) -> Lengths:
    """Lengths from the table: a model's own, else those of every model."""
    values = {row["quantity"]: float(row["value"]) for row in _rows(model)}
    return Lengths(**values)


def sources(model: str) -> dict[str, str]:
    """The source of each quantity."""
    return {row["quantity"]: row["source"] for row in _rows(model)}


@cache
def _rows(model: str) -> list[dict[str, str]]:
    rows = table("lengths")
    return [row for row in rows if row["model"] == "*"] + [row for row in rows if row["model"] == model]


def assigned(lengths: Lengths, assignments: Sequence[str]) -> Lengths:
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
    limits = dict.fromkeys(("generator_prompt", "dev_prompt", "solver_prompt"), settings.prompt_tokens)
    limits |= dict.fromkeys(("dev_response", "solver_response"), settings.solver_tokens)
    limits |= {"generator_response": settings.generator_tokens}
    return replace(lengths, **{name: min(getattr(lengths, name), limit) for name, limit in limits.items()})


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


def needs_influence(config: RunConfig) -> bool:
    """Whether questions are scored against the dev gradient."""
    cotrain = config.cotrain
    return cotrain.generator.update and not cotrain.dev_only and reward(cotrain.reward.name).needs_influence


def volume_of(config: RunConfig, lengths: Lengths) -> Volume:
    """The work of one iteration of the configuration. Raises ConfigError for a question file of unknown size."""
    cotrain, influence = config.cotrain, needs_influence(config)

    def work(groups: float, rows: int, prompt: float, mean: float, limit: int, deviation: float) -> Work:
        response = Spread(mean=mean, deviation=deviation, limit=limit)
        return Work(groups=groups, rows=rows, prompt=prompt, response=response, steps=1)

    rows, solved = cotrain.group_size, cotrain.solver_tokens
    asked = lengths.dev_prompt, lengths.dev_response, solved, lengths.spread
    dev = work(_size(config.data.dev, "data.dev"), rows, *asked)
    validation = work(_size(config.data.validation, "data.validation"), cotrain.validation_samples, *asked)
    written = lengths.generator_response, cotrain.generator_tokens, lengths.generator_spread
    documents = work(cotrain.documents, rows, lengths.generator_prompt, *written)
    answered = lengths.solver_prompt, lengths.solver_response, solved, lengths.spread
    generated = work(cotrain.documents * rows * lengths.valid, rows, *answered)
    dev_trained = replace(dev, groups=dev.groups * lengths.varied_dev)
    varied = replace(generated, groups=generated.groups * lengths.varied_questions)
    return Volume(
        dev=dev if influence or cotrain.dev_only else None,
        dev_trained=dev_trained if influence else None,
        written=None if cotrain.dev_only else documents,
        answered=None if cotrain.dev_only else generated,
        scored=varied if influence else None,
        generator=_stepped(documents, cotrain.generator.minibatch) if cotrain.generator.update else None,
        solver=_stepped(dev_trained if cotrain.dev_only else varied, cotrain.solver.minibatch)
        if cotrain.solver.update
        else None,
        validation=validation,
    )


def _stepped(work: Work, minibatch: int) -> Work:
    return replace(work, steps=max(1, math.ceil(work.groups / minibatch)))


def _size(source: QuestionSource, key: str) -> int:
    if isinstance(source, MixQuestions):
        return sum(part.count or _size(part.source, f"{key}.parts") for part in source.parts)
    if isinstance(source, BenchmarkQuestions):
        return sum(quota.count for quota in source.quotas)
    if source.size is not None:
        return source.size
    assert isinstance(source, FileQuestions)
    try:
        text = shipped.data(source.path).read_text(encoding="utf-8")
        lines = [line for line in text.splitlines() if line.strip()]
        return len(lines) if source.path.endswith(".jsonl") else len(json.loads(text))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{key}.path = {source.path!r} cannot be counted: {error}", hint=f"say how many: --set {key}.size=800"
        ) from error


WEIGHTS, GRADIENT = 4.0, 4.0
"""Bytes per parameter of fp32 weights, and of a kept gradient."""
KEPT_FULL, KEPT_EVERY = 2, 5
"""Retention by `infuser gc`: the last two checkpoints whole, of every fifth the weights, the selected one whole."""


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
    """The part of them that `infuser gc` leaves."""
    peak: float
    """Most that lies there at a time, with what the run removes itself (`store.keep`)."""


def files_of(config: RunConfig, shape: Shape) -> Files:
    """Bytes that the run writes."""
    cotrain, parameters = config.cotrain, float(shape.trained)
    base = WEIGHTS * shape.parameters if shape.adapters else 0.0
    checkpoint = WEIGHTS * parameters + 4.0 * shape.moments(cotrain.optimizer.name)
    roles = int(cotrain.solver.update) + int(cotrain.generator.update)
    gradient = GRADIENT * parameters * (1 + int(cotrain.one_backward)) if needs_influence(config) else 0.0
    per_iteration = roles * checkpoint + gradient
    full = min(cotrain.iterations, KEPT_FULL)
    thinned = max(0, cotrain.iterations - full) // KEPT_EVERY
    selected = int(cotrain.iterations > full)
    kept = roles * ((full + selected) * checkpoint + thinned * WEIGHTS * parameters)
    in_all = base + checkpoint + cotrain.iterations * per_iteration
    most = _peak(config, roles * checkpoint, roles * WEIGHTS * parameters, gradient)
    return Files(
        checkpoint=checkpoint,
        per_iteration=per_iteration,
        in_all=in_all,
        after_gc=base + checkpoint + kept,
        peak=base + checkpoint + most if config.store.keep else in_all,
    )


def _peak(config: RunConfig, checkpoint: float, thin: float, gradient: float) -> float:
    """Bytes beside the anchor's at the end of the last iteration, before retention follows: nothing is larger.

    `checkpoint` and `thin`: bytes of the roles' checkpoints, whole and without moments. Of candidates for selection,
    the best one keeps its weights, or with `within_noise` every validated one.
    """
    keep, iterations = config.store.keep, config.cotrain.iterations
    if keep is None:
        return 0.0
    whole = min(iterations, keep.full + 1)
    old = range(1, iterations - whole + 1)
    every = config.cotrain.validate_every
    weights = {number for number in old if keep.weights_every and number % keep.weights_every == 0}
    candidates = {number for number in old if number % every == 0} - weights
    best = len(candidates) if config.evaluate.selection == "within_noise" else min(1, len(candidates))
    gradients = min(iterations, 2 if config.cotrain.dev_mean else 1)
    return whole * checkpoint + (len(weights) + best) * thin + gradients * gradient
