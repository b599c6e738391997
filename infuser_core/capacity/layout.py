"""How a run's work is laid out on a cluster: what the engine settings decide about memory and time."""

from dataclasses import dataclass, replace
from typing import Any

from infuser_core.capacity.hardware import Cluster
from infuser_core.config import RunConfig

AUTOMATIC = 8192
"""Tokens of a micro-batch that a plan takes where the trainer finds its own budget: fewer than it will find."""

SINGLE = ("hf", "local", "fake")
"""Engines that use one GPU, whatever there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What decides memory and time beside the model and the hardware."""

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
    gradient_checkpointing: bool
    """Layers are computed again in backward instead of kept."""
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

    @property
    def engines(self) -> int:
        """Sampling engines."""
        return max(1, self.sampler_ranks // self.tensor_parallel)


def layout_of(config: RunConfig, cluster: Cluster) -> Layout:
    """The layout that the engine settings ask for, on at most the GPUs there are."""
    engine: dict[str, Any] = config.engine.model_dump()
    sharded = engine["trainer"] not in SINGLE
    trainers = min(cluster.ranks, engine["ranks"]) if sharded else 1
    turns = engine["placement"] == "colocated"
    others = cluster.ranks if turns else max(1, cluster.ranks - trainers)
    # Ranks and sampling engines with accelerators of their own: one trainer serves both roles, and so do the engines'
    # accelerators, side by side.
    pooled = not turns and sharded and engine["sampler"] not in SINGLE
    roles = int(config.cotrain.generator.update) + int(config.cotrain.solver.update)
    return Layout(
        trainer_ranks=trainers,
        sampler_ranks=1 if engine["sampler"] in SINGLE else others,
        turns=turns,
        shared=not turns and trainers >= cluster.ranks,
        zero_stage=engine["zero_stage"] if sharded else 0,
        offload_optimizer=engine["offload"] in ("optimizer", "all"),
        offload_weights=engine["offload"] == "all",
        gradient_checkpointing=engine["gradient_checkpointing"],
        token_budget=AUTOMATIC if engine["token_budget"] == "auto" else engine["token_budget"],
        tensor_parallel=min(engine.get("tensor_parallel", 1), cluster.per_node),
        sampler_share=engine["sampler_memory"] / (2 if pooled else 1),
        warm_trainers=1 if turns or pooled else roles,
        bytes_per_weight={"bfloat16": 2, "float32": 4, "float64": 8}[engine["dtype"]],
    )


def on_more(layout: Layout, before: Cluster, after: Cluster) -> Layout:
    """The same layout on another number of GPUs: engines that used several use as large a share of them."""

    def grown(ranks: int) -> int:
        return ranks if ranks == 1 and before.ranks > 1 else max(1, ranks * after.ranks // before.ranks)

    trainers = grown(layout.trainer_ranks) if layout.zero_stage else 1
    return replace(layout, trainer_ranks=trainers, sampler_ranks=grown(layout.sampler_ranks))
