"""GPU memory, part by part, under the layout that the engine settings ask for."""

from dataclasses import dataclass, replace

from infuser_core.config.optimizers import options_class
from infuser_core.config.run import RunConfig
from infuser_core.memory.hardware import GIB, Cluster, Gpu
from infuser_core.memory.shape import Shape
from infuser_core.memory.sizes import (
    AUTOMATIC,
    BUCKET,
    CPU_PIECE,
    INPUTS,
    LAYERS,
    LOGIT_CELLS,
    PIECE,
    PRODUCTS,
    Checkpointing,
    kept_per_token,
    kept_tokens,
)

SINGLE = ("hf", "local", "fake")
"""Engines that use one GPU, whatever there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Engine settings that decide memory and time, as a plan needs them."""

    trainer_ranks: int
    """GPUs that train; each holds a part of the state under ZeRO."""
    sampler_ranks: int
    """GPUs that sample."""
    turns: bool
    """Whether they take turns on the same GPUs: who does not work has moved its state to the host."""
    shared: bool
    """Whether they are on the same GPUs without turns: both stay."""
    zero_stage: int
    """0 keeps everything on every rank; 1 divides masters and moments, 2 gradients too, 3 the weights as well."""
    offload_optimizer: bool
    """Masters, moments and gradients live in the host's memory."""
    offload_weights: bool
    """The compute weights too, under ZeRO-3."""
    gradient_checkpointing: Checkpointing
    """Micro-batches whose activations are computed again in backward."""
    token_budget: int
    """Tokens of a micro-batch on one rank."""
    tensor_parallel: int
    """GPUs of one sampling engine."""
    sampler_share: float
    """Share of a GPU's memory that an awake sampler takes."""
    warm_trainers: int
    """Roles whose training state stays in memory: 2, or 1 with a load at every change of role or engine."""
    bytes_per_weight: int
    """Bytes of a compute weight."""
    bytes_sent: int = 4
    """Bytes of a weight as DeepSpeed holds it; ranks send fewer where it is only multiplied in a narrower dtype."""
    optimizer: str
    """Name of the optimizer."""
    probe: str
    """Probe of questions, by its setting."""
    handed: int = 0
    """Roles whose newest weights lie in the host's memory for living engines."""

    @property
    def one_by_one(self) -> bool:
        """Whether each question's whole gradient is made by itself: the reference probe, the only one for Muon."""
        return self.probe == "reference" or not options_class(self.optimizer).elementwise

    @property
    def changes_roles(self) -> bool:
        """Whether one sharded trainer serves both roles in turn."""
        return self.zero_stage > 0 and self.warm_trainers == 1


def layout_of(config: RunConfig, cluster: Cluster) -> Layout:
    """The layout that the engine settings ask for, on at most the GPUs there are."""
    engine = config.engine
    sharded = engine.trainer not in SINGLE
    trainers = min(cluster.ranks, engine.ranks) if sharded else 1
    turns = engine.placement == "colocated"
    others = cluster.ranks if turns else max(1, cluster.ranks - trainers)
    roles = int(config.cotrain.generator.update) + int(config.cotrain.solver.update)
    return Layout(
        trainer_ranks=trainers,
        sampler_ranks=1 if engine.sampler in SINGLE else others,
        turns=turns,
        shared=not turns and trainers >= cluster.ranks,
        zero_stage=engine.zero_stage if sharded else 0,
        offload_optimizer=engine.offload in ("optimizer", "all"),
        offload_weights=engine.offload == "all",
        gradient_checkpointing=engine.gradient_checkpointing,
        token_budget=engine.token_budget if isinstance(engine.token_budget, int) else AUTOMATIC,
        tensor_parallel=min(engine.tensor_parallel, cluster.per_node),
        sampler_share=engine.sampler_share,
        # One trainer serves both roles where ranks take turns with the sampler, or have accelerators of their own.
        warm_trainers=1 if turns or engine.is_pooled else roles,
        bytes_per_weight={"bfloat16": 2, "float32": 4, "float64": 8}[engine.dtype],
        optimizer=config.cotrain.optimizer.name,
        probe=engine.probe,
        handed=roles * (engine.hands_over(spread=config.cluster is not None) and config.cotrain.adapter is None),
    )


def on_more(layout: Layout, before: Cluster, after: Cluster) -> Layout:
    """The same layout on another number of GPUs: engines that used several use as large a share of them."""

    def grown(ranks: int) -> int:
        return ranks if ranks == 1 and before.ranks > 1 else max(1, ranks * after.ranks // before.ranks)

    trainers = grown(layout.trainer_ranks) if layout.zero_stage else 1
    return replace(layout, trainer_ranks=trainers, sampler_ranks=grown(layout.sampler_ranks))


FRAGMENTED = 0.06
"""Share of the trainer's parts that an accelerator's allocator cannot use."""
HEAP = 0.7
"""The same of a C library's heap, of what comes and goes with a micro-batch: measured on processes that train twice."""
RESERVE = "fragmentation reserve"
"""Name of that part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One use of a GPU's memory."""

    name: str
    """Purpose."""
    bytes: float
    """On one GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """The memory of one role on one GPU."""

    role: str
    """`trainer` or `sampler`."""
    parts: tuple[Part, ...]
    """Largest uses, in the order in which they arise."""
    room: float
    """Bytes that the GPU has for them."""

    @property
    def total(self) -> float:
        """Bytes of all parts."""
        return sum(part.bytes for part in self.parts)

    @property
    def fits(self) -> bool:
        """Whether they fit."""
        return self.total <= self.room


def trainer(shape: Shape, gpu: Gpu, layout: Layout, *, sequence: float) -> Held:
    """The trainer at its peak, scoring included; `sequence` is the longest one, which a budget cannot divide."""
    trained, ranks, stage = float(shape.trained), layout.trainer_ranks, layout.zero_stage
    state = trained / (ranks if stage >= 1 else 1)
    gradients = trained / (ranks if stage >= 2 else 1)
    on_gpu = 0.0 if layout.offload_optimizer else 1.0
    tokens, sharded = max(float(layout.token_budget), sequence), layout.zero_stage > 0
    roles = layout.warm_trainers
    parts = [
        Part(name="weights", bytes=_weights(shape, layout)),
        Part(name="gradients (fp32)", bytes=4 * gradients * on_gpu * roles),
        Part(name="fp32 masters", bytes=4 * state * on_gpu * roles),
        Part(name="moments (fp32)", bytes=4 * shape.moments(layout.optimizer) * state / trained * on_gpu * roles),
        Part(name="reference gradient (fp32)", bytes=4 * state * on_gpu),
        # DeepSpeed reduces a micro-batch's gradient into a buffer of its own.
        Part(name="reduced gradients (fp32)", bytes=4 * gradients * on_gpu * sharded),
        Part(name="activations", bytes=activations(shape, layout, tokens, on_host=gpu.is_host)),
        Part(name="logits", bytes=(_logits_on_cpu if gpu.is_host else _logits)(shape, tokens)),
        Part(name="scoring", bytes=_scoring(shape, layout, state, piece=CPU_PIECE if gpu.is_host else PIECE)),
        Part(name="communication buffers", bytes=_buffers(shape, layout)),
    ]
    passing = [part for part in parts if part.name in PASSING]
    fragmented = sum(part.bytes for part in (passing if gpu.is_host else parts)) * (HEAP if gpu.is_host else FRAGMENTED)
    parts += [
        Part(name=RESERVE, bytes=fragmented),
        Part(name="context", bytes=gpu.context),
    ]
    return Held(role="trainer", parts=tuple(parts), room=gpu.memory)


PASSING = ("activations", "logits")
"""Parts that come and go with a micro-batch."""


def _logits(shape: Shape, tokens: float) -> float:
    return 3 * 4.0 * min(LOGIT_CELLS, tokens * shape.vocabulary)


def _logits_on_cpu(shape: Shape, tokens: float) -> float:
    """There, logits are one buffer or small tiles, and autograd adds a tied embedding's two whole gradients."""
    few = tokens * shape.vocabulary <= LOGIT_CELLS
    return 4 * tokens * shape.vocabulary * few + 2 * 4.0 * shape.vocabulary * shape.hidden


def activations(shape: Shape, layout: Layout, tokens: float, *, on_host: bool) -> float:
    """Bytes that the layout's trainer keeps for backward, of the micro-batch that keeps most."""
    width = layout.bytes_per_weight
    most = {kept: kept_per_token(shape, width=width, kept=kept, on_host=on_host) for kept in (LAYERS, PRODUCTS, INPUTS)}
    if layout.gradient_checkpointing is False:
        # A layer's worth of gradients beside it; a CPU's lie in the holes of its heap.
        return tokens * most[LAYERS] * (1 + (not on_host) / shape.layers)
    short = min(float(kept_tokens(layout.gradient_checkpointing)), tokens)
    return max(short * most[PRODUCTS], tokens * most[INPUTS] if short < tokens else 0.0)


def _scoring(shape: Shape, layout: Layout, state: float, *, piece: int) -> float:
    """Pieces of some questions' gradients, or the whole one of a question and what a matrix's direction takes."""
    if not layout.one_by_one:
        return 3 * 4.0 * min(piece, shape.trained)
    elementwise = options_class(layout.optimizer).elementwise
    largest = shape.vocabulary * shape.hidden if elementwise else 4 * shape.hidden * shape.ffn
    return 4 * state + 4.0 * min(largest, shape.trained)


def _weights(shape: Shape, layout: Layout) -> float:
    """Weights that passes use, beside the masters."""
    whole, stage = float(shape.parameters), layout.zero_stage
    if stage == 0 and layout.bytes_per_weight > 2 and not shape.adapters:
        # Compute and master weights have one dtype: they are the same tensors.
        return 0.0
    if stage == 0:
        return layout.bytes_per_weight * whole * layout.warm_trainers
    # What autograd keeps of them in the compute dtype: a layer's where layers are computed again.
    cast = whole if layout.gradient_checkpointing is False else shape.layer_parameters
    cast *= layout.bytes_per_weight if layout.bytes_per_weight < layout.bytes_sent else 0
    if stage < 3:
        return layout.bytes_sent * whole * layout.warm_trainers + cast
    own = 0.0 if layout.offload_weights else whole / layout.trainer_ranks * layout.warm_trainers
    # Two gathered pieces: the one in use and the one fetched ahead.
    largest = max(shape.layer_parameters, shape.vocabulary * shape.hidden)
    return layout.bytes_sent * (own + 2.0 * largest) + cast


def _buffers(shape: Shape, layout: Layout) -> float:
    """A bucket to reduce, one to gather, and the library's own channels."""
    if layout.trainer_ranks == 1:
        return 0.0
    return 2 * 4.0 * min(BUCKET, shape.parameters) + 1.0 * GIB


def both(shape: Shape, gpu: Gpu, layout: Layout, *, sequence: float) -> list[Held]:
    """Trainer and sampler, each with what the other leaves on its GPU while it rests."""
    one = trainer(shape, gpu, layout, sequence=sequence)
    if layout.shared:
        # A sampler that shares its GPU takes what the trainer leaves.
        small = sampler(shape, gpu, replace(layout, sampler_share=0.0), sequence=sequence)
        return [_beside(one, "resting sampler", small.total), _beside(small, "resting trainer", one.total)]
    other = sampler(shape, gpu, layout, sequence=sequence)
    if layout.turns:
        return [_beside(one, "sleeping sampler", gpu.context), _beside(other, "sleeping trainer", gpu.context)]
    return [one, other]


def host(shape: Shape, layout: Layout, *, per_node: int) -> float:
    """Bytes that a node's memory holds for its GPUs: what is offloaded, and what has moved there to sleep.

    Of engines that take turns, a sampler's weights of both roles are there while others work, and a sharded trainer's
    masters, moments and gradients; an unsharded trainer keeps nothing and loads its checkpoint again. A sharded one
    that serves both roles keeps the other role's masters and moments there, and while they change, those of both.
    What trainers hand over lies there once.
    """
    parameters, ranks = float(shape.parameters), layout.trainer_ranks
    own = parameters / ranks if layout.zero_stage else parameters
    weights = layout.bytes_per_weight * own * layout.warm_trainers
    state = 16.0 * own * layout.warm_trainers
    moved = layout.offload_optimizer or (layout.turns and layout.zero_stage > 0)
    waiting = 2 * 12.0 * own * layout.changes_roles
    trainers = state * moved + waiting + weights * layout.offload_weights
    samplers = 2 * sampled_bytes(shape, layout) / layout.tensor_parallel if layout.turns else 0.0
    handed = layout.handed * layout.bytes_per_weight * parameters
    return min(per_node, ranks) * trainers + min(per_node, layout.sampler_ranks) * samplers + handed


def _beside(held: Held, name: str, size: float) -> Held:
    return replace(held, parts=(*held.parts, Part(name=name, bytes=size)))


def sampler(shape: Shape, gpu: Gpu, layout: Layout, *, sequence: float) -> Held:
    """The sampler with the cache of its share of the memory, or at least that of one longest response."""
    tokens = max(sequence, cache_tokens(shape, gpu, layout))
    parts = (
        Part(name="weights", bytes=sampled_bytes(shape, layout) / layout.tensor_parallel),
        Part(name="KV cache", bytes=tokens * shape.cache_bytes / layout.tensor_parallel),
        Part(name="decoding graphs and buffers", bytes=gpu.graphs),
        Part(name="context", bytes=gpu.context),
    )
    return Held(role="sampler", parts=parts, room=gpu.memory)


def sampled_bytes(shape: Shape, layout: Layout) -> float:
    """Bytes of a sampling engine's weights."""
    return layout.bytes_per_weight * float(shape.parameters)


def cache_tokens(shape: Shape, gpu: Gpu, layout: Layout) -> float:
    """Tokens that an engine's cache holds in its share of the memory."""
    weights = sampled_bytes(shape, layout) / layout.tensor_parallel
    free = gpu.memory * layout.sampler_share - weights - gpu.graphs - gpu.context
    return max(0.0, free * layout.tensor_parallel / shape.cache_bytes)
