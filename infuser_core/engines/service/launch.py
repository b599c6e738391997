"""Build the commands that start the sampling engines of one machine.

An engine is a process that samples. Nothing here imports vllm: an engine's process may run in another environment.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from infuser_core.config.engine import EngineSettings
from infuser_core.errors import EngineError
from infuser_core.store.adapter_files import is_packed, read_adapter

VLLM = "infuser_core.engines.vllm.worker"
HF = "infuser_core.engines.hf.worker"
"""Modules of this project that an engine's process may run."""

PYTHON = "INFUSER_VLLM_PYTHON"
"""Environment variable: interpreter of the environment with vllm, if that is not this one."""

LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Ranks of adapters for which vLLM reserves memory."""

START_SECONDS = 900.0
"""Longest time for an engine to start, or to obey a command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceOptions:
    """Settings of sampling engines, and of how they are supervised."""

    device: str
    """`cpu` or `cuda`."""
    dtype: str
    """Compute dtype."""
    threads: int
    """CPU threads of each engine."""
    engines: int | None = None
    """Engines of a machine; None makes one per `tensor_parallel` visible accelerators, and one on a CPU."""
    tensor_parallel: int = 1
    """Accelerators that share one engine's weights."""
    memory: float = EngineSettings.model_fields["sampler_memory"].default
    """Share of an accelerator's memory that an engine may take."""
    max_num_seqs: int | None = None
    """Responses that an engine computes at a time; None is vLLM's default for offline work on its device."""
    max_num_batched_tokens: int | None = None
    """Tokens of one step of an engine, prompts included; None is vLLM's default."""
    max_model_len: int | None = None
    """Most prompt and response tokens of one sequence of a run's two roles, for which memory is reserved; never above
    the model's own limit, which None and every other role take."""
    reserved: int = 0
    """Number of visible accelerators, the first ones, that the trainer uses."""
    sleep: bool = True
    """Whether an accelerator's memory can be given back between roles."""
    silent_seconds: float = 300.0
    """Longest silence of a working engine before it counts as hung."""
    worker: str = VLLM
    """Module that an engine's process runs."""
    vllm: Mapping[str, Any] = field(default_factory=dict)
    """Other arguments of vLLM's engine, by its own names."""
    in_place: bool = True
    """Whether running engines take new weights of the same shapes; False starts fresh engines each time."""
    deterministic: bool = False
    """Whether the worker HF uses only repeatable kernels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """Command that starts an engine's process: `python -m module`, with `settings` for the engine."""

    name: str
    python: str
    module: str
    settings: dict[str, Any]
    environment: dict[str, str]
    """Variables in addition to those of this process."""
    folder: Path
    """Working directory, which also takes its output."""

    @property
    def log(self) -> Path:
        """File for the engine's output."""
        return self.folder / f"{self.name.replace(' ', '-')}.log"


def adapter_settings(options: ServiceOptions, folder: Path) -> dict[str, Any]:
    """Return vLLM's arguments for engines that hold a checkpoint's base model and take adapters by request (LoRA).

    Empty for a full model, and for engines that get adapters merged into the base model: those of another program,
    those that restart for new weights, fp32 on an accelerator (vLLM's kernels take 16 bits alone), ranks above the
    largest of LORA_RANKS, and adapters on a base model in 4 bits, whose values a merged copy has.
    """
    adapter = read_adapter(folder)
    exact = options.device == "cuda" and options.dtype == "float32"
    merges = options.worker == HF or not options.in_place or exact or is_packed(folder)
    if adapter is None or merges or adapter["r"] > LORA_RANKS[-1]:
        return {}
    return {
        "enable_lora": True,
        "max_lora_rank": next(rank for rank in LORA_RANKS if rank >= adapter["r"]),
        "lora_target_modules": adapter["target_modules"],
    }


def interpreter(worker: str) -> str:
    """Return the Python of a worker's environment. Raises EngineError if it is this one and vllm is missing."""
    python = sys.executable if worker == HF else os.environ.get(PYTHON, "") or sys.executable
    if python == sys.executable and worker == VLLM and find_spec("vllm") is None:
        raise EngineError(
            "the sampler needs vllm, and this environment does not have it",
            hint=f"pip install 'infuser[rollout-vllm]', or name the Python of another environment in {PYTHON}",
        )
    return python


def launches(
    options: ServiceOptions,
    *,
    model: str,
    scratch: Path,
    cards: Sequence[str],
    adapter: Mapping[str, Any] | None = None,
) -> list[Launch]:
    """Build one command per engine, run in the folder `scratch`; `model` is the model's path relative to it.

    The path is part of the key of vLLM's compile cache: an absolute path in a new folder would never find an entry.
    `adapter`: see `adapter_settings`. Raises EngineError if there are fewer `cards` than needed.
    """
    cuda = options.device == "cuda"
    free = list(cards[options.reserved :]) if cuda else []
    count = options.engines or max(1, len(free) // options.tensor_parallel)
    if cuda and count * options.tensor_parallel > len(free):
        raise EngineError(
            f"{count} engines of {options.tensor_parallel} accelerators each were requested, and {len(free)} are "
            f"visible{f' in addition to the {options.reserved} of the trainer' if options.reserved else ''}",
            hint="lower the number of engines or tensor_parallel",
        )
    width = options.tensor_parallel
    shares = [",".join(free[place * width : (place + 1) * width]) for place in range(count)]
    return [
        Launch(
            name=f"engine {place}",
            python=interpreter(options.worker),
            module=options.worker,
            settings=engine_settings(options, model=model) | dict(adapter or {}) | {"engines_here": count},
            environment={"OMP_NUM_THREADS": str(options.threads)} | ({"CUDA_VISIBLE_DEVICES": share} if share else {}),
            folder=scratch,
        )
        for place, share in enumerate(shares)
    ]


def engine_settings(options: ServiceOptions, *, model: str) -> dict[str, Any]:
    """Return the arguments of an engine; those of vLLM have vLLM's names."""
    common: dict[str, Any] = {"model": model, "dtype": options.dtype}
    if options.worker == HF:
        return common | {"device": options.device, "deterministic": options.deterministic}
    return common | {
        "tensor_parallel_size": options.tensor_parallel,
        "max_num_seqs": options.max_num_seqs,
        "max_num_batched_tokens": options.max_num_batched_tokens,
        "max_model_len": options.max_model_len,
        "enforce_eager": options.device == "cpu",
        "enable_sleep_mode": options.sleep and options.device == "cuda",
        "gpu_memory_utilization": options.memory,
        **options.vllm,
    }


def visible_cards() -> list[str]:
    """List the accelerators that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [card.strip() for card in visible.split(",") if card.strip()]
    # Imported here: torch takes seconds and 190 MB.
    import torch

    return [str(card) for card in range(torch.cuda.device_count())]
