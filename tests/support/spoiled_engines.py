"""Real engines that take new weights badly while they run, in one way each; fresh ones take them well."""

import sys
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from infuser_core.engines.service.local_engines import VIEW, LocalEngines
from infuser_core.engines.service.sampler import ServiceSampler
from infuser_core.engines.service.server import ADAPTER, main
from infuser_core.engines.vllm.worker import VLLMEngine
from infuser_core.store.adapter_files import WEIGHTS

Tensors = dict[str, torch.Tensor]


def wrong(tensors: Tensors) -> None:
    """One matrix has other numbers."""
    name = next(name for name in sorted(tensors) if name.endswith("mlp.down_proj.weight"))
    tensors[name] = tensors[name].flip(0).contiguous()


def missing(tensors: Tensors) -> None:
    """One matrix stays what it was."""
    del tensors[next(name for name in sorted(tensors) if name.endswith("self_attn.o_proj.weight"))]


def flipped(tensors: Tensors) -> None:
    """One matrix of an adapter has its rows in another order."""
    name = next(name for name in sorted(tensors) if name.endswith("mlp.down_proj.lora_B.weight"))
    tensors[name] = tensors[name].flip(0).contiguous()


def nudged(tensors: Tensors) -> None:
    """One number of one matrix is the next one that the type has."""
    cell = tensors[next(name for name in sorted(tensors) if name.endswith("self_attn.k_proj.weight"))][1, 1:2]
    cell.copy_(torch.nextafter(cell, torch.ones(1)))


class SpoiledEngines(LocalEngines):
    """Shows running engines other weights than it was asked to."""

    spoil: Callable[[Tensors], None] | None = None

    def show(self, folder: Path, weights: Path | None = None) -> None:
        super().show(folder, weights)
        if self.engines and self._scratch is not None and self.spoil is not None:
            adapter = self._scratch / ADAPTER / WEIGHTS
            file = adapter if adapter.is_symlink() else self._scratch / VIEW / "model.safetensors"
            tensors = load_file(file)
            file.unlink()
            self.spoil(tensors)
            save_file(tensors, file, metadata={"format": "pt"})


class SpoiledSampler(ServiceSampler):
    """`spoil` says what happens to the weights on their way to engines that run."""

    def __init__(self, spoil: Callable[[Tensors], None] | None, **options: object) -> None:
        super().__init__(**options)  # type: ignore[arg-type]
        self._spoil = spoil

    def _new_hosts(self) -> list[LocalEngines]:  # type: ignore[override]
        engines = SpoiledEngines(self._options)
        engines.spoil = self._spoil
        return [engines]


class StaleHead(VLLMEngine):
    """Leaves what kernels made of tied weights as it was."""

    def load(self) -> None:
        self._engine.collective_rpc("reload_weights")
        self._engine.reset_prefix_cache()


if __name__ == "__main__":
    main(sys.argv[1:], StaleHead)
