"""Memory that trainer and sampler take on one GPU, part by part, predicted from the engine settings."""

from dataclasses import dataclass, replace

from infuser_core.config.optimizers import options_class
from infuser_core.config.run import RunConfig
from infuser_core.memory.hardware import GIB, Cluster, Gpu
from infuser_core.memory.shape import Shape
from infuser_core.memory.sizes import (
    AUTOMATIC,
    BUCKET,
    CHUNK,
    CPU_CHUNK,
    INPUTS,
    LAYERS,
    LOGIT_CELLS,
    PRODUCTS,
    Checkpointing,
    activation_bytes_per_token,
    kept_tokens,
    logit_cells,
)

SINGLE = ("hf", "local", "fake")
"""Engines that use one GPU, however many there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLayout:
    """Engine settings that decide a run's memory and time, resolved for a cluster."""

    trainer_ranks: int
    """GPUs that train; each holds a part of the state under ZeRO."""
    sampler_ranks: int
    """GPUs that sample."""
    turns: bool
    """Whether trainer and sampler take turns on the same GPUs: the idle one moves its state to the host."""
    shared: bool
    """Whether trainer and sampler occupy the same GPUs at the same time."""
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
    """Bytes of a weight as DeepSpeed holds it; ranks send fewer if it is only multiplied in a narrower dtype."""
    optimizer: str
    """Name of the optimizer."""
    samplers: int = 2
    """Sampling engines on each GPU: one per role, or one for both."""
    samples_four_bit: bool = False
    """Whether samplers keep a base model that is in 4 bits as it is: `vllm` has adapters merged into plain weights."""
    handed: int = 0
    """Roles whose newest weights are in the host's memory for running engines."""

    @property
    def changes_roles(self) -> bool:
        """Whether one sharded trainer serves both roles in turn."""
        return self.zero_stage > 0 and self.warm_trainers == 1


def layout_of(config: RunConfig, cluster: Cluster) -> EngineLayout:
    """Resolve a configuration's engine settings on at most the cluster's GPUs."""
    engine = config.engine
    sharded = engine.trainer not in SINGLE
    trainers = min(cluster.ranks, engine.ranks) if sharded else 1
    turns = engine.placement == "colocated"
    others = cluster.ranks if turns else max(1, cluster.ranks - trainers)
    roles = int(config.cotrain.generator.update) + int(config.cotrain.solver.update)
    return EngineLayout(
        trainer_ranks=trainers,
        sampler_ranks=1 if engine.sampler in SINGLE else others,
        turns=turns,
        shared=not turns and trainers >= cluster.ranks,
        zero_stage=engine.zero_stage if sharded else 0,
        offload_optimizer=engine.offload in ("optimizer", "all"),
        offload_weights=engine.offload == "all",
        # A trainer that finds its own number needs no more than one that keeps only inputs.
        gradient_checkpointing=engine.gradient_checkpointing == "auto" or engine.gradient_checkpointing,
        token_budget=engine.token_budget if isinstance(engine.token_budget, int) else AUTOMATIC,
        tensor_parallel=min(engine.tensor_parallel, cluster.per_node),
        sampler_share=engine.sampler_memory if config.has_one_sampler else engine.sampler_share,
        samplers=1 if config.has_one_sampler else 2,
        # One trainer serves both roles if ranks take turns with the sampler, or have separate accelerators.
        warm_trainers=1 if turns or engine.is_pooled else roles,
        bytes_per_weight={"bfloat16": 2, "float32": 4, "float64": 8}[engine.dtype],
        optimizer=config.cotrain.optimizer.name,
        samples_four_bit=engine.sampler == "hf" and config.cluster is None,
        handed=roles * (engine.hands_over(spread=config.cluster is not None) and config.cotrain.adapter is None),
    )


def on_more(layout: EngineLayout, before: Cluster, after: Cluster) -> EngineLayout:
    """Scale a layout to another number of GPUs: engines that used several keep their share of all GPUs."""

    def scaled(ranks: int) -> int:
        return ranks if ranks == 1 and before.ranks > 1 else max(1, ranks * after.ranks // before.ranks)

    trainers = scaled(layout.trainer_ranks) if layout.zero_stage else 1
    return replace(layout, trainer_ranks=trainers, sampler_ranks=scaled(layout.sampler_ranks))


FRAGMENTED = 0.06
"""Memory lost to fragmentation on an accelerator, as a share of the trainer's parts."""
HEAP = 0.7
"""Memory lost to fragmentation of a CPU's heap, as a share of PASSING parts; measured on processes that train twice."""
RESERVE = "fragmentation reserve"
"""Name of the part for fragmentation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPart:
    """One use of a GPU's memory, e.g. weights or activations."""

    name: str
    bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleMemory:
    """Predicted memory of the trainer or of a sampler on one GPU, part by part."""

    role: str
    """`trainer` or `sampler`."""
    parts: tuple[MemoryPart, ...]
    room: float
    """Memory of the GPU, bytes."""

    @property
    def total(self) -> float:
        """Sum of the parts, bytes."""
        return sum(part.bytes for part in self.parts)

    @property
    def fits(self) -> bool:
        """Whether the parts fit into the GPU's memory."""
        return self.total <= self.room


def trainer_memory(shape: Shape, gpu: Gpu, layout: EngineLayout, *, sequence: float) -> RoleMemory:
    """Predict the trainer's memory at its peak, scoring included.

    `sequence` is the length of the longest sequence, which a token budget cannot divide.
    """
    trained, ranks, stage = float(shape.trained), layout.trainer_ranks, layout.zero_stage
    state = trained / (ranks if stage >= 1 else 1)
    gradients = trained / (ranks if stage >= 2 else 1)
    on_gpu = 0.0 if layout.offload_optimizer else 1.0
    tokens, sharded = max(float(layout.token_budget), sequence), layout.zero_stage > 0
    roles = layout.warm_trainers
    precision = "fp32" if options_class(layout.optimizer).moment_bytes == 4 else "8-bit"
    parts = [
        MemoryPart(name="weights", bytes=_weight_bytes(shape, layout)),
        MemoryPart(name="gradients (fp32)", bytes=4 * gradients * on_gpu * roles),
        MemoryPart(name="fp32 masters", bytes=4 * state * on_gpu * roles),
        MemoryPart(
            name=f"moments ({precision})", bytes=shape.moment_bytes(layout.optimizer) * state / trained * on_gpu * roles
        ),
        MemoryPart(name="reference gradient (fp32)", bytes=4 * state * on_gpu),
        # DeepSpeed reduces a micro-batch's gradient into a separate buffer.
        MemoryPart(name="reduced gradients (fp32)", bytes=4 * gradients * on_gpu * sharded),
        MemoryPart(name="activations", bytes=activation_bytes(shape, layout, tokens, on_host=gpu.is_host)),
        MemoryPart(name="logits", bytes=_logit_bytes(shape, tokens, gpu)),
        MemoryPart(name="scoring", bytes=_scoring_bytes(shape, layout, on_host=gpu.is_host)),
        # A bucket to reduce, a bucket to gather, and buffers of the communication library.
        MemoryPart(
            name="communication buffers",
            bytes=0.0 if ranks == 1 else 2 * 4.0 * min(BUCKET, shape.parameters) + 1.0 * GIB,
        ),
    ]
    passing = [part for part in parts if part.name in PASSING]
    fragmented = sum(part.bytes for part in (passing if gpu.is_host else parts)) * (HEAP if gpu.is_host else FRAGMENTED)
    parts += [
        MemoryPart(name=RESERVE, bytes=fragmented),
        MemoryPart(name="context", bytes=gpu.context),
    ]
    return RoleMemory(role="trainer", parts=tuple(parts), room=gpu.memory)


PASSING = ("activations", "logits")
"""Parts that exist during a micro-batch only."""


def _logit_bytes(shape: Shape, tokens: float, gpu: Gpu) -> float:
    cells = tokens * shape.vocabulary
    if not gpu.is_host:
        return 3 * 4.0 * min(logit_cells(gpu.memory), cells)
    # On a CPU, logits are one buffer or small tiles, and autograd adds a tied embedding's two whole gradients.
    return (4 * cells if cells <= LOGIT_CELLS else 0.0) + 2 * 4.0 * shape.vocabulary * shape.hidden


def activation_bytes(shape: Shape, layout: EngineLayout, tokens: float, *, on_host: bool) -> float:
    """Predict the bytes of activations kept for backward, in the micro-batch that keeps most."""
    width = layout.bytes_per_weight
    layers, products, inputs = (
        activation_bytes_per_token(shape, width=width, retained=each, on_host=on_host)
        for each in (LAYERS, PRODUCTS, INPUTS)
    )
    if layout.gradient_checkpointing is False:
        # Plus one layer's gradients; on a CPU these fit into free blocks of the heap.
        return tokens * layers * (1 + (not on_host) / shape.layers)
    short = min(float(kept_tokens(layout.gradient_checkpointing)), tokens)
    return max(short * products, tokens * inputs if short < tokens else 0.0)


def _scoring_bytes(shape: Shape, layout: EngineLayout, *, on_host: bool) -> float:
    """Bytes of the direction of a gradient's chunk or matrix; under ZeRO also of reference and moment, gathered."""
    matrix, chunk = float(shape.hidden * shape.ffn), float(min(CPU_CHUNK if on_host else CHUNK, shape.trained))
    if layout.zero_stage:
        # Of a parameter over a chunk one owner's part.
        gathered = max(chunk, max(matrix, shape.vocabulary * shape.hidden) / layout.trainer_ranks)
        return 4 * (chunk + 2 * gathered)
    return 4 * (chunk if options_class(layout.optimizer).elementwise else 4 * matrix)


def _weight_bytes(shape: Shape, layout: EngineLayout) -> float:
    """Bytes of the weights that forward and backward passes use, in addition to the masters."""
    whole, stage = float(shape.parameters), layout.zero_stage
    if stage == 0 and layout.bytes_per_weight > 2 and not shape.adapters:
        # Compute and master weights have one dtype: they are the same tensors.
        return 0.0
    if stage == 0:
        # A product converts its matrix from 4 bits.
        converted = layout.bytes_per_weight * shape.hidden * shape.ffn if shape.four_bit else 0.0
        return shape.weight_bytes(layout.bytes_per_weight) * layout.warm_trainers + converted
    # Copies that autograd keeps in the compute dtype: of all weights, or of one layer's if layers are recomputed.
    cast = whole if layout.gradient_checkpointing is False else shape.layer_parameters
    cast *= layout.bytes_per_weight if layout.bytes_per_weight < layout.bytes_sent else 0
    if stage < 3:
        return layout.bytes_sent * whole * layout.warm_trainers + cast
    own = 0.0 if layout.offload_weights else whole / layout.trainer_ranks * layout.warm_trainers
    # Two gathered pieces: the one in use and the one fetched ahead.
    largest = max(shape.layer_parameters, shape.vocabulary * shape.hidden)
    return layout.bytes_sent * (own + 2.0 * largest) + cast


def memory_of_roles(shape: Shape, gpu: Gpu, layout: EngineLayout, *, sequence: float) -> list[RoleMemory]:
    """Predict the memory of trainer and sampler, each with the memory that the other occupies on the same GPU."""
    training = trainer_memory(shape, gpu, layout, sequence=sequence)
    if layout.shared:
        # A sampler that shares its GPU takes what the trainer leaves.
        small = sampler_memory(shape, gpu, replace(layout, sampler_share=0.0), sequence=sequence)
        return [
            _with_part(training, "resting sampler", small.total),
            _with_part(small, "resting trainer", training.total),
        ]
    sampling = sampler_memory(shape, gpu, layout, sequence=sequence)
    if layout.turns:
        return [
            _with_part(training, "sleeping sampler", gpu.context),
            _with_part(sampling, "sleeping trainer", gpu.context),
        ]
    return [training, sampling]


def host_bytes(shape: Shape, layout: EngineLayout, *, per_node: int) -> float:
    """Predict the bytes used in a node's main memory: offloaded state, and the state of sleeping engines.

    If engines take turns, sleeping samplers keep their weights there (see `sleep_level`), and a sharded trainer its
    masters, moments and gradients; an unsharded trainer needs nothing, and keeps its state there only if there is room.
    A sharded trainer that serves both roles keeps the idle role's masters and moments there, and those of both while it
    changes roles. Weights handed to running samplers are stored once.
    """
    parameters, ranks = float(shape.parameters), layout.trainer_ranks
    own = parameters / ranks if layout.zero_stage else parameters
    weights = layout.bytes_per_weight * own * layout.warm_trainers
    state = 16.0 * own * layout.warm_trainers
    on_host = layout.offload_optimizer or (layout.turns and layout.zero_stage > 0)
    waiting = 2 * 12.0 * own * layout.changes_roles
    trainers = state * on_host + waiting + weights * layout.offload_weights
    samplers = layout.samplers * sampler_weight_bytes(shape, layout) / layout.tensor_parallel if layout.turns else 0.0
    shared = layout.handed * layout.bytes_per_weight * parameters
    return min(per_node, ranks) * trainers + min(per_node, layout.sampler_ranks) * samplers + shared


def _with_part(role: RoleMemory, name: str, size: float) -> RoleMemory:
    return replace(role, parts=(*role.parts, MemoryPart(name=name, bytes=size)))


def sampler_memory(shape: Shape, gpu: Gpu, layout: EngineLayout, *, sequence: float) -> RoleMemory:
    """Predict the sampler's memory: its KV cache fills its share of the GPU, or holds at least one longest sequence."""
    tokens = max(sequence, cache_tokens(shape, gpu, layout))
    parts = (
        MemoryPart(name="weights", bytes=sampler_weight_bytes(shape, layout) / layout.tensor_parallel),
        MemoryPart(name="KV cache", bytes=tokens * shape.cache_bytes / layout.tensor_parallel),
        MemoryPart(name="decoding graphs and buffers", bytes=gpu.graphs),
        MemoryPart(name="context", bytes=gpu.context),
    )
    return RoleMemory(role="sampler", parts=parts, room=gpu.memory)


def sampler_weight_bytes(shape: Shape, layout: EngineLayout) -> float:
    """Predict the bytes of a sampling engine's weights, on all its GPUs together."""
    return (shape if layout.samples_four_bit else replace(shape, four_bit=False)).weight_bytes(layout.bytes_per_weight)


def cache_tokens(shape: Shape, gpu: Gpu, layout: EngineLayout) -> float:
    """Predict the tokens that fit into the KV cache of a sampling engine, within its share of the memory."""
    weights = sampler_weight_bytes(shape, layout) / layout.tensor_parallel
    free = gpu.memory * layout.sampler_share - weights - gpu.graphs - gpu.context
    return max(0.0, free * layout.tensor_parallel / shape.cache_bytes)
