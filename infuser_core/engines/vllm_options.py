"""How vLLM engines are built, and what each of their processes is started with."""

import os
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import torch

from infuser_core.engines.vllm_process import MODULE, Launch
from infuser_core.errors import EngineError

PYTHON = "INFUSER_VLLM_PYTHON"
"""Environment variable: interpreter whose environment holds vllm, where that is not this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VLLMOptions:
    """How the engines are built and watched."""

    engines: int | None = None
    """Engines; None makes one per `tensor_parallel` visible accelerators, and one on a CPU."""
    tensor_parallel: int = 1
    """Accelerators that share one engine's weights."""
    memory: float = 0.85
    """Share of an accelerator's memory that an engine may take."""
    max_sequences: int = 256
    """Responses that an engine computes at a time."""
    max_model_len: int | None = None
    """Prompt and response tokens of one sequence of a run's two roles, so that memory is cut for what is asked; never
    above the model's own limit, which None and every other role take."""
    reserved: int = 0
    """Visible accelerators, the first ones, that belong to somebody else."""
    updates: Literal["fresh", "in_place"] = "fresh"
    """How another checkpoint is loaded: into fresh engines, or by vLLM's own reload, which some builds get wrong with
    tied embeddings. Either way the log-probabilities are checked."""
    eager: bool = False
    """True neither compiles nor captures graphs: starts faster, samples slower."""
    sleep: bool = True
    """Whether an accelerator's memory can be given back between roles."""
    start_seconds: float = 900.0
    """Longest start or reload of an engine."""
    silent_seconds: float = 300.0
    """Longest silence of an engine with work to do, before it counts as hung."""
    python: str = ""
    """Interpreter whose environment holds vllm; empty for INFUSER_VLLM_PYTHON or else this one."""
    worker: str = MODULE
    """Module that an engine's process runs."""


def interpreter(options: VLLMOptions) -> str:
    """Python of the environment that holds vllm. Raises EngineError where that is this one and it holds none."""
    python = options.python or os.environ.get(PYTHON, "") or sys.executable
    if python == sys.executable and options.worker == MODULE and find_spec("vllm") is None:
        raise EngineError(
            "the sampler needs vllm, and this environment holds none",
            hint=f"pip install 'infuser[rollout-vllm]', or name the Python of another environment in {PYTHON}",
        )
    return python


def launches(
    options: VLLMOptions, *, model: Path, scratch: Path, dtype: str, device: torch.device, threads: int
) -> list[Launch]:
    """One start per engine. Raises EngineError where there are fewer accelerators than asked for."""
    cards = visible_cards()[options.reserved :] if device.type == "cuda" else []
    count = options.engines or max(1, len(cards) // options.tensor_parallel)
    if device.type == "cuda" and count * options.tensor_parallel > len(cards):
        raise EngineError(
            f"{count} engines of {options.tensor_parallel} accelerators each were asked for, and {len(cards)} are "
            f"visible{f' beside the {options.reserved} of the trainer' if options.reserved else ''}",
            hint="lower the number of engines or tensor_parallel",
        )
    python, settings = interpreter(options), engine_settings(options, model=model, dtype=dtype, device=device)
    return [
        Launch(
            name=f"vllm engine {place}",
            python=python,
            module=options.worker,
            settings=settings,
            environment=_environment(cards, place, options.tensor_parallel, threads),
            log=scratch / f"engine-{place}.log",
        )
        for place in range(count)
    ]


def engine_settings(options: VLLMOptions, *, model: Path, dtype: str, device: torch.device) -> dict[str, Any]:
    """Arguments of a vLLM engine, by its own names."""
    return {
        "model": str(model),
        "dtype": dtype,
        "tensor_parallel_size": options.tensor_parallel,
        "max_num_seqs": options.max_sequences,
        "max_model_len": options.max_model_len,
        "enforce_eager": options.eager or device.type == "cpu",
        "enable_sleep_mode": options.sleep and device.type == "cuda",
        "gpu_memory_utilization": options.memory,
    }


def visible_cards() -> list[str]:
    """Names of the accelerators that this process may use, as CUDA_VISIBLE_DEVICES writes them."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [name.strip() for name in named.split(",") if name.strip()]
    return [str(card) for card in range(torch.cuda.device_count())]


def _environment(cards: list[str], place: int, width: int, threads: int) -> dict[str, str]:
    own = {"OMP_NUM_THREADS": str(threads)}
    if cards:
        own["CUDA_VISIBLE_DEVICES"] = ",".join(cards[place * width : (place + 1) * width])
    return own
