"""Estimated hours of a run: tokens, FLOPs of matrix products, and a utilisation per kind of work.

Rows, tokens and FLOPs are formulas over mean lengths. Seconds are FLOPs divided by the dense rate of the accelerators
that do the work and by a utilisation: measured (see timings.py), or assumed in `utilisations.csv`. Checkpoint files,
weights sent to samplers, optimizer steps and waiting for the longest response are not counted: they lower utilisation.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

from infuser_core.config import shipped
from infuser_core.config.optimizers import options_class
from infuser_core.config.phase_table import Phase
from infuser_core.config.run import CotrainSettings, RunConfig
from infuser_core.config.sources import BenchmarkQuestions, FileQuestions, MixQuestions, QuestionSource
from infuser_core.cotrain.reward import needs_influence
from infuser_core.errors import ConfigError, UsageError
from infuser_core.memory.hardware import read_table
from infuser_core.memory.shape import Shape, gradient_passes

SAMPLING, SCORING, TRAINING = "sampling", "scoring", "training"
"""Kinds of work: decoding; influence probes and forward passes; forward and backward passes for a gradient."""
KINDS = (SAMPLING, SCORING, TRAINING)
Utilisations = dict[str, tuple[float, str]]
"""Utilisation (share of the dense FLOP rate) and its source, by kind of work."""
SHARES = ("valid", "varied_dev", "varied_questions")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Mean lengths in tokens, and shares of rows that the next phase uses."""

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
    valid: float
    """Share of generator rollouts that are questions."""
    varied_dev: float
    """Share of dev questions whose sampled answers differ in reward; the others give no gradient."""
    varied_questions: float
    """Share of generated questions whose sampled answers differ in reward."""


def known_lengths(model: str) -> dict[str, tuple[float, str]]:
    """Mean lengths and shares with their sources: from the table's row of the model, else from that of all models."""
    rows = sorted(read_table("lengths", package=__package__), key=lambda row: row["model"] != "*")
    return {row["quantity"]: (float(row["value"]), row["source"]) for row in rows if row["model"] in ("*", model)}


def parse_lengths(model: str, settings: CotrainSettings, assignments: Sequence[str] = ()) -> Lengths:
    """Lengths of a model, changed by `quantity=value` assignments and capped at the token limits of the settings.

    Raises UsageError for an unknown quantity or an impossible value.
    """
    lengths = Lengths(**{name: value for name, (value, _) in known_lengths(model).items()})
    names = [field.name for field in fields(Lengths)]
    for text in assignments:
        name, _, value = text.partition("=")
        if name not in names:
            raise UsageError(f"--tokens {text}: unknown quantity {name!r}", hint=f"known: {', '.join(names)}")
        lowest, highest = (0.0, 1.0) if name in SHARES else (1.0, 1e7)
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not lowest <= number <= highest:
            raise UsageError(f"--tokens {text}: {value!r} is out of range", hint=f"from {lowest:g} to {highest:g}")
        lengths = replace(lengths, **{name: number})
    limits = dict.fromkeys(("generator_prompt", "dev_prompt", "solver_prompt"), settings.prompt_tokens)
    limits |= dict.fromkeys(("dev_response", "solver_response"), settings.solver_tokens)
    limits |= {"generator_response": settings.generator_tokens}
    return replace(lengths, **{name: min(getattr(lengths, name), limit) for name, limit in limits.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupWork:
    """A batch of prompts with several responses each, all of mean length."""

    groups: float
    """Number of prompts."""
    rows: int
    """Responses per prompt."""
    prompt: float
    """Tokens of a prompt."""
    response: float
    """Tokens of a response."""

    @property
    def tokens(self) -> float:
        """Prompt and response tokens; a group's prompt counts once."""
        return self.groups * (self.prompt + self.rows * self.response)

    def forward(self, shape: Shape) -> float:
        """FLOPs of one forward pass over all tokens."""
        alone, together = shape.pairs(self.prompt), shape.pairs(self.prompt + self.response)
        return shape.forward_flops(self.tokens, self.groups * (alone + self.rows * (together - alone)))


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseWork:
    """Tokens and FLOPs of a phase of an iteration, or of a validation."""

    name: str
    work: GroupWork
    flops: Mapping[str, float]
    """FLOPs by kind of work."""

    def seconds(self, pace: Mapping[str, float]) -> float:
        """Wall-clock seconds; `pace`: seconds per FLOP by kind of work."""
        return sum(count * pace[kind] for kind, count in self.flops.items())


def gradient_flops(config: RunConfig, shape: Shape, work: GroupWork) -> float:
    """FLOPs of a gradient, with one more forward pass if all layers are recomputed."""
    passes = gradient_passes(adapters=bool(shape.adapters)) + int(config.engine.gradient_checkpointing is True)
    return passes * work.forward(shape)


def scoring_flops(config: RunConfig, shape: Shape, work: GroupWork, dev: GroupWork) -> float:
    """FLOPs of influence scoring: a gradient per question, and the optimizer's step direction per hidden matrix.

    A measured score takes a gradient per step and a forward pass over the answers `dev` per question.
    """
    if config.cotrain.influence == "measured":
        steps = config.cotrain.influence_steps * gradient_flops(config, shape, work)
        return steps + work.groups * dev.forward(shape)
    flops = options_class(config.cotrain.optimizer.name).direction_flops
    directions = shape.layers * sum(flops(*sides) for sides in shape.hidden_matrices)
    return gradient_flops(config, shape, work) + work.groups * directions


def phase_work(config: RunConfig, shape: Shape, lengths: Lengths) -> list[PhaseWork]:
    """Work of the phases of one iteration, in the order of the paper's table; means over rows.

    Raises ConfigError for a question file of unknown size.
    """
    cotrain, influence, rows = config.cotrain, needs_influence(config.cotrain), config.cotrain.group_size
    dev_questions = _count_questions(config.data.dev, "data.dev")
    dev = GroupWork(groups=dev_questions, rows=rows, prompt=lengths.dev_prompt, response=lengths.dev_response)
    generation = GroupWork(
        groups=cotrain.documents, rows=rows, prompt=lengths.generator_prompt, response=lengths.generator_response
    )
    answers = GroupWork(
        groups=generation.groups * rows * lengths.valid,
        rows=rows,
        prompt=lengths.solver_prompt,
        response=lengths.solver_response,
    )
    varied_dev = replace(dev, groups=dev.groups * lengths.varied_dev)
    varied = replace(answers, groups=answers.groups * lengths.varied_questions)

    def sampling(name: str, work: GroupWork) -> PhaseWork:
        return PhaseWork(name=name, work=work, flops={SAMPLING: work.forward(shape)})

    def update(name: str, work: GroupWork, minibatch: int, *, scored: bool) -> PhaseWork:
        # Forward passes for old log-probabilities (needless for one step or after scoring) and for the anchor's (KL).
        before = int(work.groups > minibatch and not scored) + int(cotrain.loss.kl > 0)
        flops = {TRAINING: gradient_flops(config, shape, work), SCORING: before * work.forward(shape)}
        return PhaseWork(name=name, work=work, flops=flops)

    phases = [sampling(Phase.ROLLOUT_DEV, dev)] if influence or cotrain.dev_only else []
    if not cotrain.dev_only:
        phases += [sampling(Phase.GENERATE_QUESTIONS, generation), sampling(Phase.ROLLOUT_QUESTIONS, answers)]
    if influence:
        flops = {TRAINING: gradient_flops(config, shape, varied_dev)}
        phases.append(PhaseWork(name=Phase.DEV_GRADIENT, work=varied_dev, flops=flops))
        flops = {SCORING: scoring_flops(config, shape, varied, varied_dev)}
        phases.append(PhaseWork(name=Phase.SCORE_INFLUENCE, work=varied, flops=flops))
    if cotrain.generator.update:
        phases.append(update(Phase.UPDATE_GENERATOR, generation, cotrain.generator.minibatch, scored=False))
    if cotrain.solver.update:
        work = varied_dev if cotrain.dev_only else varied
        phases.append(
            update(
                Phase.UPDATE_SOLVER,
                work,
                cotrain.solver.minibatch,
                scored=influence and cotrain.influence != "measured",
            )
        )
    return phases


def validation_work(config: RunConfig, shape: Shape, lengths: Lengths) -> PhaseWork:
    """Work of one validation, answered like dev questions. Raises ConfigError like `phase_work`."""
    groups, rows = _count_questions(config.data.validation, "data.validation"), config.cotrain.validation_samples
    work = GroupWork(groups=groups, rows=rows, prompt=lengths.dev_prompt, response=lengths.dev_response)
    return PhaseWork(name=Phase.VALIDATE, work=work, flops={SAMPLING: work.forward(shape)})


def _count_questions(source: QuestionSource, key: str) -> int:
    if isinstance(source, MixQuestions):
        return sum(part.count or _count_questions(part.source, f"{key}.parts") for part in source.parts)
    if isinstance(source, BenchmarkQuestions):
        return sum(quota.count for quota in source.quotas)
    if source.size is not None:
        return source.size
    assert isinstance(source, FileQuestions)
    try:
        text = shipped.find_data_file(source.path).read_text(encoding="utf-8")
        lines = [line for line in text.splitlines() if line.strip()]
        return len(lines) if source.path.endswith(".jsonl") else len(json.loads(text))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{key}.path = {source.path!r} cannot be counted: {error}", hint=f"say how many: --set {key}.size=800"
        ) from error


def iteration_seconds(phases: Sequence[PhaseWork], pace: Mapping[str, float], *, overlap: bool) -> float:
    """Seconds of one iteration. With `overlap`, the dev gradient is computed while questions are sampled."""
    seconds = {phase.name: phase.seconds(pace) for phase in phases}
    if not overlap or Phase.DEV_GRADIENT not in seconds:
        return sum(seconds.values())
    # Dev rollouts and questions share the samplers until the dev rollouts are complete.
    generating = max(0.0, seconds[Phase.GENERATE_QUESTIONS] - seconds[Phase.ROLLOUT_DEV])
    return sum(seconds.values()) - min(seconds[Phase.DEV_GRADIENT], generating + seconds[Phase.ROLLOUT_QUESTIONS])


def assumed_utilisations(sampler: str) -> dict[str, tuple[float, str]]:
    """Assumed utilisation of the dense rate by kind of work, with its source."""
    rows = {
        row["kind"]: (float(row["value"]), f"assumption: {row['source']}")
        for row in read_table("utilisations", package=__package__)
    }
    slow = rows.pop("sampling without vLLM")
    return rows if sampler == "vllm" else rows | {SAMPLING: slow}
