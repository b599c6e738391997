"""The engines that a configuration asks for: names and options as data, one row per engine."""

from collections.abc import Callable, Mapping
from typing import Any

from infuser_core.config import EngineSettings, OptimizerSettings
from infuser_core.engines.pool import EnginePool

Options = dict[str, Any]


def configured_pool(engine: EngineSettings, optimizer: OptimizerSettings) -> EnginePool:
    """The pool of a run. Nothing starts before an engine is asked for."""
    return EnginePool(
        sampler=engine.sampler,
        trainer=engine.trainer,
        sampler_options=SAMPLERS[engine.sampler](engine),
        trainer_options=TRAINERS[engine.trainer](engine) | {"optimizer": constants(optimizer)},
        # Roles that share the accelerators keep one trainer's state on them.
        max_trainers=1 if engine.placement == "colocated" else 2,
        placement=engine.placement,
    )


def constants(optimizer: OptimizerSettings) -> Options:
    """AdamW's constants by the names of AdamWOptions."""
    return {
        "beta1": optimizer.beta1,
        "beta2": optimizer.beta2,
        "eps": optimizer.epsilon,
        "weight_decay": optimizer.weight_decay,
        "max_grad_norm": optimizer.gradient_clip,
    }


def _common(engine: EngineSettings) -> Options:
    return {"dtype": engine.dtype, "device": engine.device, "threads": engine.threads}


def _local(engine: EngineSettings) -> Options:
    packing = {"token_budget": engine.token_budget, "gradient_checkpointing": engine.gradient_checkpointing}
    return _common(engine) | packing


def _deepspeed(engine: EngineSettings) -> Options:
    return _local(engine) | {"ranks": engine.ranks, "zero_stage": engine.zero_stage, "offload": engine.offload}


def _nothing(engine: EngineSettings) -> Options:
    return {}


def _vllm(engine: EngineSettings) -> Options:
    placing = {"tensor_parallel": engine.tensor_parallel, "memory": engine.sampler_memory}
    return _common(engine) | placing | {"sleep": engine.placement == "colocated"}


SAMPLERS: Mapping[str, Callable[[EngineSettings], Options]] = {"hf": _common, "vllm": _vllm, "fake": _nothing}
"""Options of every sampler by its name."""

TRAINERS: Mapping[str, Callable[[EngineSettings], Options]] = {
    "local": _local,
    "deepspeed": _deepspeed,
    "fake": _nothing,
}
"""Options of every trainer by its name, the optimizer's constants apart."""
