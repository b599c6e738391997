"""Seconds of the phases of one iteration, each as a sum of named terms."""

import math
from dataclasses import dataclass, replace

from infuser_core.capacity.asked import Asked
from infuser_core.capacity.hardware import of_size
from infuser_core.capacity.memory import Layout, cache_tokens
from infuser_core.capacity.sampling import Batch, Engine, sample
from infuser_core.capacity.training import (
    Terms,
    Trainers,
    Work,
    added,
    packed,
    packed_questions,
    question_by_question,
    rows_in_step,
)

ORDER = (
    "rollout_dev",
    "generate_questions",
    "rollout_questions",
    "dev_gradient",
    "score_influence",
    "update_generator",
    "update_solver",
)
"""The seven phases, in the order of the paper's wall-clock table."""

PUBLISHED_SHARE = 0.6
"""Share of a GPU's memory that the published runs' sampler took."""
ENOUGH_TOKENS = 32_768
"""Tokens of cache below which nobody would run a sampler."""

TERMS = {
    "prefill": "prompts",
    "longest": "the longest response alone",
    "crowd": "decoding the other responses",
    "weights": "weights to the sampler",
    "matmul": "matrix products",
    "uneven": "waiting for the rank with the most tokens",
    "launches": "per-layer launches",
    "collectives": "collectives between ranks",
    "sweeps": "sweeps over optimizer state",
    "files": "checkpoint and gradient files",
    "stage": "between phases",
}
"""Meaning of each term of a phase."""
TRAINING = ("matmul", "uneven", "launches", "collectives", "sweeps")
"""Terms of a phase that trains or scores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """One phase of an iteration."""

    name: str
    """Name in `infuser_core/phases`, or `other`."""
    terms: dict[str, float]
    """Seconds by term (see TERMS)."""
    rows: int
    """Responses sampled or trained on."""
    tokens: float
    """Prompt and response tokens; a group's prompt counts once."""

    @property
    def seconds(self) -> float:
        """Wall-clock seconds."""
        return sum(self.terms.values())


def _weights(asked: Asked) -> float:
    """Bytes of the compute weights."""
    return asked.layout.bytes_per_weight * float(asked.shape.parameters)


def _trainers(asked: Asked) -> Trainers:
    """The ranks that train."""
    cluster, ranks = asked.cluster, asked.layout.trainer_ranks
    if ranks != cluster.ranks:
        if ranks <= cluster.per_node:
            cluster = replace(cluster, nodes=1, per_node=ranks)
        elif ranks % cluster.per_node == 0:
            cluster = replace(cluster, nodes=ranks // cluster.per_node)
        else:
            cluster = of_size(cluster.gpu, ranks)
    return Trainers(shape=asked.shape, cluster=cluster, layout=asked.layout, efficiency=asked.efficiency)


def _engine(asked: Asked) -> Engine:
    """One of the engines that sample."""
    return Engine(
        shape=asked.shape,
        gpu=asked.cluster.gpu,
        parallel=asked.layout.tensor_parallel,
        cache_tokens=cache_tokens(asked.shape, asked.cluster.gpu, asked.layout),
        efficiency=asked.efficiency,
    )


def packed_phases(asked: Asked) -> list[Phase]:
    """This program's schedule. The same constants, but no GPU has confirmed it."""
    volume, trainers, parameters, disk = asked.volume, _trainers(asked), float(asked.shape.parameters), asked.disk
    synced = 4 * parameters / disk + trainers.copied(_weights(asked))
    written, read = 4 * parameters / disk, 4 * parameters / disk
    # One trainer for both roles loads at every change; one that only made room for a sampler comes back from the host,
    # unless it is unsharded: that one keeps nothing.
    layout, loaded = asked.layout, 12 * parameters / disk
    changed = loaded if layout.warm_trainers == 1 else 0.0
    parked = trainers.copied(16 * parameters / trainers.ranks) if layout.zero_stage else loaded
    again = parked if layout.turns else 0.0
    answers_known = volume.scored is not None
    phases = [
        _sampled(asked, "rollout_dev", volume.dev, synced),
        _sampled(asked, "generate_questions", volume.written, synced),
        _sampled(asked, "rollout_questions", volume.answered, synced if volume.dev is None else 0.0),
    ]
    if volume.dev_trained:
        done = packed(trainers, volume.dev_trained, passes=trainers.passes)
        phases.append(_trained("dev_gradient", volume.dev_trained, done, written + again))
    if volume.scored:
        done = packed_questions(trainers, volume.scored)
        phases.append(_trained("score_influence", volume.scored, done, read + again))
    for name, work, fresh in (
        ("update_generator", volume.generator, True),
        # Scoring has computed the solver's log-probabilities already.
        ("update_solver", volume.solver, not answers_known),
    ):
        if work:
            done = added(packed(trainers, work, passes=trainers.passes), _steps(trainers, work))
            if fresh and work.steps > 1:
                done = added(done, packed(trainers, replace(work, steps=1), passes=1))
            phases.append(_trained(name, work, done, loaded + changed))
    return _with_glue([phase for phase in phases if phase], asked, 0.0)


def published_phases(asked: Asked) -> list[Phase]:
    """The published runs' schedule, on which the constants were calibrated.

    Responses may use the room that the prompt leaves, and are cut to the limit afterwards; old log-probabilities take
    a pass of their own with two rows at a time; weights are saved every fifth iteration in bf16.
    """
    volume, micro_rows, prompt_limit = asked.volume, asked.lengths.micro_rows, asked.config.cotrain.prompt_tokens
    asked = replace(asked, layout=published_layout(asked))
    trainers, parameters = _trainers(asked), float(asked.shape.parameters)
    synced = trainers.gathers(1) + trainers.copied(_weights(asked))
    phases = [
        _sampled(asked, name, _with_room(work, prompt_limit), synced)
        for name, work in (
            ("rollout_dev", volume.dev),
            ("generate_questions", volume.written),
            ("rollout_questions", volume.answered),
        )
    ]
    # Moments live in the host's memory between phases.
    moved = {"sweeps": 2 * trainers.copied(8 * parameters / trainers.ranks)}
    if volume.dev_trained:
        done = rows_in_step(trainers, volume.dev_trained, micro_rows=micro_rows, passes=trainers.passes, beside=False)
        phases.append(_trained("dev_gradient", volume.dev_trained, done, 0.0))
    if volume.scored:
        done = added(question_by_question(trainers, volume.scored, micro_rows=micro_rows), moved)
        phases.append(_trained("score_influence", volume.scored, done, 0.0))
    for name, work in (("update_generator", volume.generator), ("update_solver", volume.solver)):
        if work:
            done = rows_in_step(trainers, work, micro_rows=micro_rows, passes=trainers.passes, beside=True)
            before = rows_in_step(trainers, replace(work, steps=1), micro_rows=2, passes=1, beside=True)
            phases.append(_trained(name, work, added(done, before, _steps(trainers, work), moved), 0.0))
    return _with_glue([phase for phase in phases if phase], asked, 2 * 2 * parameters / 5 / asked.disk)


def _with_room(work: Work | None, prompt_limit: int) -> Work | None:
    if work is None:
        return None
    limit = work.response.limit + max(0.0, prompt_limit - work.prompt)
    return replace(work, response=replace(work.response, limit=limit))


def _sampled(asked: Asked, name: str, work: Work | None, synced: float) -> Phase | None:
    if work is None:
        return None
    engines, rows = asked.layout.engines, round(work.groups * work.rows)
    batch = Batch(
        groups=work.groups / engines,
        rows=math.ceil(rows / engines),
        prompt=work.prompt,
        response=work.response,
        of=rows,
    )
    terms = {**sample(_engine(asked), batch), "weights": synced}
    return Phase(name=name, terms=terms, rows=rows, tokens=work.tokens)


def _trained(name: str, work: Work, done: Terms, files: float) -> Phase:
    terms = {term: done.get(term, 0.0) for term in TRAINING} | {"files": files}
    return Phase(name=name, terms=terms, rows=round(work.groups * work.rows), tokens=work.tokens)


def _steps(trainers: Trainers, work: Work) -> Terms:
    return {name: work.steps * seconds for name, seconds in trainers.optimizer_step().items()}


def _with_glue(phases: list[Phase], asked: Asked, files: float) -> list[Phase]:
    ordered = sorted(phases, key=lambda phase: ORDER.index(phase.name))
    terms = {"stage": len(phases) * asked.efficiency.stage, "files": files}
    return [*ordered, Phase(name="other", terms=terms, rows=0, tokens=0.0)]


def published_layout(asked: Asked) -> Layout:
    """Layout of the published runs: everything divided over all GPUs, layers computed again, a small cache.

    Where weights leave no room in the published share of the memory, the sampler keeps the run's own.
    """
    cluster, layout = asked.cluster, asked.layout
    small = replace(layout, tensor_parallel=1, sampler_share=PUBLISHED_SHARE, bytes_per_weight=2)
    roomy = cache_tokens(asked.shape, cluster.gpu, small) > ENOUGH_TOKENS
    return replace(
        layout,
        trainer_ranks=cluster.ranks,
        sampler_ranks=cluster.ranks,
        turns=True,
        shared=False,
        zero_stage=3,
        offload_optimizer=False,
        offload_weights=False,
        gradient_checkpointing=True,
        tensor_parallel=1,
        sampler_share=PUBLISHED_SHARE if roomy else layout.sampler_share,
        bytes_per_weight=2,
    )


def validation_seconds(asked: Asked) -> float:
    """Seconds of one validation: its questions are answered like dev questions."""
    phase = _sampled(asked, "rollout_dev", asked.volume.validation, 0.0)
    return phase.seconds if phase else 0.0
