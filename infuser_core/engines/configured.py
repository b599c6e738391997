"""Create the engine pools and worker pools of a run from its configuration."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from infuser_core.config.engine import ClusterSettings, EngineSettings
from infuser_core.config.run import RunConfig
from infuser_core.engines.cluster.machines import RayCluster
from infuser_core.engines.cluster.ray_pool import RayPool
from infuser_core.engines.cluster.remote_memory import ClusterMemory
from infuser_core.engines.pool import EnginePool
from infuser_core.engines.service.launch import HF
from infuser_core.engines.service.weight_transfer import Board
from infuser_core.system.worker_pool import LocalPool, WorkerPool

Options = dict[str, Any]


def run_pool(config: RunConfig, *, longest_sequence: int) -> EnginePool:
    """Create the engines of a run, which start on first use; `longest_sequence`: tokens of prompt and response."""
    engine = config.engine
    shared = None if config.cluster is None else _shared(engine, config.cluster)
    sampler, options = _sampling(engine, shared)
    limit = {"max_model_len": longest_sequence} if engine.sampler == "vllm" else {}
    machines = {"cluster": shared} if shared and engine.trainer == "deepspeed" else {}
    fill = None if shared is None else ClusterMemory(shared).fill
    board = {"board": Board(engine.dtype, fill)} if engine.hands_over(spread=shared is not None) else {}
    room = {"memory": engine.sampler_memory} if config.has_one_sampler else {}
    optimizer = {"optimizer": config.cotrain.optimizer.options()}
    return EnginePool(
        sampler=sampler,
        trainer=engine.trainer,
        sampler_options=options | limit | board | room,
        trainer_options=board | options_of(engine.trainer, engine) | optimizer | machines,
        max_trainers=warm_trainers(engine),
        one_sampler=config.has_one_sampler,
        placement=engine.placement,
    )


def sampling_pool(
    engine: EngineSettings, cluster: ClusterSettings | None, *, cache_tokens: int, seals: Path | None = None
) -> EnginePool:
    """Create the engines of an evaluation: samplers without a trainer, on all machines of a cluster.

    `seals`: see self_test.require_same_once.
    """
    shared = None if cluster is None else RayCluster(address=cluster.address, ranks=0)
    sampler, options = _sampling(engine, shared)
    cache = {"cache_tokens": cache_tokens, "seals": seals} if sampler == "hf" else {}
    return EnginePool(
        sampler=sampler,
        trainer=engine.trainer,
        placement="split",
        max_trainers=0,
        sampler_options=options | cache,
    )


def _sampling(engine: EngineSettings, cluster: RayCluster | None) -> tuple[str, Options]:
    """Return the sampler's name and options, for this machine or for a cluster."""
    if cluster is None or engine.sampler == "fake":
        return engine.sampler, options_of(engine.sampler, engine)
    options = options_of(engine.sampler, engine) | {"cluster": cluster}
    if engine.sampler == "hf":
        # The service that runs vLLM's processes also runs those of `hf`, which are silent while they compute a group.
        options |= {"worker": HF, "silent_seconds": 3600.0, "in_place": engine.in_place}
    return "vllm", options


def run_workers(config: RunConfig, number: int | None = None) -> WorkerPool:
    """Create the workers of a run's long stages: all of a cluster, or `number` on this machine (None: one per core)."""
    return RayPool(_shared(config.engine, config.cluster)) if config.cluster else LocalPool(number)


def warm_trainers(engine: EngineSettings) -> int:
    """Number of trainers that stay loaded: one if engines take turns, or if ranks have separate accelerators."""
    return 1 if engine.placement == "colocated" or engine.is_pooled else 2


def _shared(engine: EngineSettings, cluster: ClusterSettings) -> RayCluster:
    ranks = engine.ranks if engine.trainer == "deepspeed" else 1
    return RayCluster(address=cluster.address, ranks=ranks, turns=engine.placement == "colocated")


def options_of(name: str, engine: EngineSettings) -> Options:
    """Select the options of the engine `name` from the settings; the optimizer's constants are not among them."""
    derived: Options = {}
    if name == "local":
        derived = {"roles": warm_trainers(engine)}
    if name == "vllm":
        derived = {
            "memory": engine.sampler_share,
            "sleep": engine.placement == "colocated",
            "reserved": engine.ranks if engine.is_pooled else 0,
            "in_place": engine.in_place,
        }
    return engine.model_dump(include={*SETTINGS[name]}) | derived


_COMMON = ("dtype", "device", "threads")
_PACKING = ("token_budget", "gradient_checkpointing", "elementwise")
SETTINGS: Mapping[str, Sequence[str]] = {
    "hf": (*_COMMON, "deterministic"),
    "vllm": (*_COMMON, "tensor_parallel", "max_num_seqs", "max_num_batched_tokens", "vllm"),
    "local": (*_COMMON, *_PACKING, "attention", "deterministic", "write_beside"),
    "deepspeed": (*_COMMON, *_PACKING, "ranks", "zero_stage", "offload", "write_beside"),
    "fake": (),
}
"""Settings that each engine takes as options of the same name."""
