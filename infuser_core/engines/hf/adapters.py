"""Low-rank adapters of a model's linear layers by peft: made, attached for training, merged for sampling.

LoRA (Hu et al. 2021, arXiv 2106.09685, section 4.1): W x + alpha/r B A x with A [r, in] and B [out, r] trained, W not.
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, inject_adapter_in_model
from peft.tuners.lora import Linear
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PretrainedConfig, PreTrainedModel

from infuser_core.config.roles import ALL_LINEAR, AdapterSettings
from infuser_core.engines.training.checkpoint import fill
from infuser_core.errors import ConfigError
from infuser_core.seeding import seed_of
from infuser_core.store.adapter_files import BASE_KEY, CONFIG, WEIGHTS, rename_for_peft


def create(config: PretrainedConfig, adapter: AdapterSettings, out: Path, *, base: str, seed: int) -> dict[str, Tensor]:
    """Write `adapter_config.json`, which plain peft reads, into `out`; returns the adapters' first weights, fp32.

    `base` is the path from `out` to the model of that configuration, of which no weight is read. A is uniform in
    +-1/sqrt(in), B zero: a function of the seed and of the parameters' names. Raises ConfigError for targets that are
    none of the model's linear layers.
    """
    model = outline(config)
    content = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        BASE_KEY: base,
        "r": adapter.rank,
        "lora_alpha": adapter.alpha,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": layers_of(model, adapter.targets),
    }
    (out / CONFIG).write_text(json.dumps(content, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    inject_adapter_in_model(LoraConfig.from_pretrained(str(out)), model)
    return {name: _first(name, parameter.shape, seed) for name, parameter in _trained(model).items()}


def outline(config: PretrainedConfig) -> PreTrainedModel:
    """The model of a configuration, without memory for its weights."""
    with torch.device("meta"):
        model: PreTrainedModel = AutoModelForCausalLM.from_config(config)
    return model


def layers_of(model: PreTrainedModel, targets: Sequence[str] | str) -> list[str]:
    """Last names of the linear layers that are meant, sorted. Raises ConfigError for one that the model has not."""
    output = model.get_output_embeddings()
    layers = [path for path, layer in model.named_modules() if type(layer) is nn.Linear and layer is not output]
    linear = {path.rpartition(".")[2] for path in layers}
    wanted = linear if targets == ALL_LINEAR else set(targets)
    unknown = sorted(wanted - linear)
    if unknown or not wanted:
        raise ConfigError(
            f"cotrain.adapter.targets = {targets}: {type(model).__name__} has no linear layer {' or '.join(unknown)}",
            hint=f"its linear layers are {', '.join(sorted(linear)) or 'none'}",
        )
    return sorted(wanted)


def attach(model: PreTrainedModel, folder: Path) -> dict[str, nn.Parameter]:
    """Attach a checkpoint's adapters, at least fp32, to its base model, and freeze the rest.

    Raises CheckpointError where the folder's weights are others.
    """
    inject_adapter_in_model(LoraConfig.from_pretrained(str(folder)), model)
    found = _trained(model)
    for parameter in found.values():
        parameter.data = parameter.data.to(torch.promote_types(parameter.dtype, torch.float32))
    fill(rename_for_peft({name: parameter.data for name, parameter in found.items()}), folder / WEIGHTS)
    return found


@torch.no_grad()
def merge(model: PreTrainedModel, folder: Path) -> None:
    """Add a checkpoint's adapters to the weights of its base model, each sum rounded once to the model's dtype."""
    attach(model, folder)
    for path, layer in list(model.named_modules()):
        if isinstance(layer, Linear):
            own: Any = layer.get_base_layer()
            (name,) = layer.active_adapters
            delta = layer.get_delta_weight(name)
            own.weight.copy_(own.weight.to(delta.dtype) + delta)
            model.set_submodule(path, own)
    del model.peft_config
    model.requires_grad_(True)


def _trained(model: nn.Module) -> dict[str, nn.Parameter]:
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def _first(name: str, shape: torch.Size, seed: int) -> Tensor:
    if ".lora_B." in name:
        return torch.zeros(shape)
    generator = torch.Generator().manual_seed(seed_of(seed, "adapter", name))
    return torch.empty(shape).uniform_(-1.0, 1.0, generator=generator) / math.sqrt(shape[1])
