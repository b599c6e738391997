"""Seconds of the phases of one iteration, each as a sum of named terms."""

import math
from dataclasses import dataclass, replace

from infuser_core.capacity.asked import Asked
from infuser_core.capacity.sampling import Batch, Engine, sample
from infuser_core.capacity.training import (
    CACHED,
    FILE,
    HASHED,
    HASHERS,
    Terms,
    Trainers,
    Work,
    added,
    packed,
    packed_questions,
)
from infuser_core.memory.hardware import of_size
from infuser_core.memory.parts import cache_tokens

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
OTHER = "other"
"""Name of what lies between phases."""
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


def phases_of(asked: Asked) -> list[Phase]:
    """The phases of an iteration, and `other`. No GPU has confirmed them."""
    volume, trainers, disk = asked.volume, _trainers(asked), asked.disk
    parameters, trained = float(asked.shape.parameters), float(asked.shape.trained)
    synced, laid = _synced(asked, trainers)
    gradient = 4 * trained
    read = trainers.cached(gradient) if trainers.beside_disk else gradient / disk
    # One trainer for both roles changes them: a sharded one exchanges what it holds with what waits in host memory, as
    # it comes back from there after it made room for a sampler; an unsharded one keeps nothing and loads.
    layout, checkpoint = asked.layout, 4 * (parameters + asked.shape.moments(asked.layout.optimizer))
    loaded = checkpoint / disk
    waited = 2 * trainers.copied(12 * trained / trainers.ranks) if layout.zero_stage else loaded
    changed = waited if layout.warm_trainers == 1 else 0.0
    parked = trainers.copied(16 * trained / trainers.ranks) if layout.zero_stage else loaded
    again = parked if layout.turns else 0.0
    answers_known = volume.scored is not None
    phases = [
        _sampled(asked, "rollout_dev", volume.dev, synced),
        _sampled(asked, "generate_questions", volume.written, synced),
        _sampled(asked, "rollout_questions", volume.answered, synced if volume.dev is None else 0.0),
    ]
    if volume.dev_trained:
        done = packed(trainers, volume.dev_trained)
        written = _written(asked, trainers, gradient, files=1, beside=True)
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
            done = added(packed(trainers, work), _steps(trainers, work))
            if fresh and work.steps > 1:
                done = added(done, packed(trainers, replace(work, steps=1), backward=False))
            beside = name == "update_generator"
            files = _written(asked, trainers, checkpoint, files=checkpoint / FILE, beside=beside) + laid + changed
            if asked.config.cotrain.loss.kl:
                # The anchor's log-probabilities: it is loaded, and then the policy again.
                done = added(done, packed(trainers, replace(work, steps=1), backward=False))
                files += 2 * loaded
            phases.append(_trained(name, work, done, files))
    return _with_glue([phase for phase in phases if phase], asked, 0.0)


def _sampled(asked: Asked, name: str, work: Work | None, synced: float, *, share: float = 1.0) -> Phase | None:
    if work is None:
        return None
    engines, rows = asked.layout.engines, round(work.groups * work.rows)
    batch = Batch(
        groups=work.groups / engines,
        rows=math.ceil(rows / engines),
        prompt=work.prompt,
        response=work.response,
        of=rows,
        share=share,
    )
    terms = {**sample(_engine(asked), batch), "weights": synced}
    return Phase(name=name, terms=terms, rows=rows, tokens=work.tokens)


def _synced(asked: Asked, trainers: Trainers) -> tuple[float, float]:
    """Seconds of a sampler that takes new weights, and of the trainer that lays them in memory for it.

    Ranks lay them in the engines' dtype into a file on every machine of theirs, and each machine with engines alone
    gets a copy. What is not laid comes from the checkpoint.
    """
    layout, cluster, weights = asked.layout, asked.cluster, _weights(asked)
    taken = trainers.copied(weights)
    if layout.zero_stage and layout.handed:
        apart = cluster.nodes - math.ceil(trainers.ranks / cluster.per_node)
        copies = min(apart, math.ceil(layout.sampler_ranks / cluster.per_node))
        network = cluster.gpu.network * cluster.per_node * asked.efficiency.link
        # One machine sends all of them (see engines.cluster.memory).
        return weights / CACHED + taken, trainers.laid(weights) + copies * weights / network
    return 4.0 * asked.shape.parameters / asked.disk + taken, 0.0


def _written(asked: Asked, trainers: Trainers, size: float, *, files: float, beside: bool) -> float:
    """Seconds in which an artifact of so many bytes is written, hashed and flushed before the next phase begins.

    One pass does it all, but with `engine.write_beside` ranks of one machine leave files in the page cache: a commit
    hashes and flushes them, `beside` later phases, which take longer, or before the next one.
    """
    hashers, flushed = min(HASHERS, max(1.0, files)), size / asked.disk
    if asked.config.engine.write_beside and trainers.beside_disk:
        return trainers.cached(size) + (0.0 if beside else max(size / (HASHED * hashers), flushed))
    if asked.layout.zero_stage:
        hashers = min(hashers, trainers.ranks)
    return max(size / (HASHED * hashers), flushed)


def _trained(name: str, work: Work, done: Terms, files: float) -> Phase:
    terms = {term: done.get(term, 0.0) for term in TRAINING} | {"files": files}
    return Phase(name=name, terms=terms, rows=round(work.groups * work.rows), tokens=work.tokens)


def _steps(trainers: Trainers, work: Work) -> Terms:
    return {name: work.steps * seconds for name, seconds in trainers.optimizer_step().items()}


def _with_glue(phases: list[Phase], asked: Asked, files: float) -> list[Phase]:
    ordered = sorted(phases, key=lambda phase: ORDER.index(phase.name))
    terms = {"stage": len(phases) * asked.efficiency.stage, "files": files}
    return [*ordered, Phase(name=OTHER, terms=terms, rows=0, tokens=0.0)]


def validation_seconds(asked: Asked) -> float:
    """Seconds of one validation: its questions are answered like dev questions."""
    phase = _sampled(asked, "rollout_dev", asked.volume.validation, 0.0)
    return phase.seconds if phase else 0.0
