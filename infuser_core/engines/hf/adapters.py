"""Create low-rank adapters (LoRA) with peft, attach them for training, and merge them for sampling.

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
from transformers import PreTrainedModel

from infuser_core.config.roles import ALL_LINEAR, AdapterSettings
from infuser_core.engines.training.checkpoint import fill_tensors
from infuser_core.errors import ConfigError
from infuser_core.seeding import seed_of
from infuser_core.store.adapter_files import BASE_KEY, CONFIG, WEIGHTS, rename_for_peft


def create_adapters(
    model: PreTrainedModel, adapter: AdapterSettings, out: Path, *, base: str, seed: int
) -> dict[str, Tensor]:
    """Write peft's `adapter_config.json` into `out`; returns the adapters' initial weights, fp32.

    `model` needs no weights (see `build_meta_model`) and is changed; `base` is the path of its folder from `out`. A is
    uniform in +-1/sqrt(in), B zero: a function of the seed and the parameters' names. Raises ConfigError for targets
    that are not linear layers of the model.
    """
    content = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        BASE_KEY: base,
        "r": adapter.rank,
        "lora_alpha": adapter.alpha,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": target_layers(model, adapter.targets),
    }
    (out / CONFIG).write_text(json.dumps(content, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    inject_adapter_in_model(LoraConfig.from_pretrained(str(out)), model)
    weights = {}
    for name, parameter in trained_parameters(model).items():
        generator = torch.Generator().manual_seed(seed_of(seed, "adapter", name))
        uniform = torch.empty(parameter.shape).uniform_(-1.0, 1.0, generator=generator)
        weights[name] = uniform.zero_() if ".lora_B." in name else uniform / math.sqrt(parameter.shape[1])
    return weights


def linear_layers(model: PreTrainedModel) -> list[str]:
    """List the paths of a model's linear layers, except its output layer."""
    output = model.get_output_embeddings()
    return [path for path, layer in model.named_modules() if type(layer) is nn.Linear and layer is not output]


def target_layers(model: PreTrainedModel, targets: Sequence[str] | str) -> list[str]:
    """Sort the last parts of the names of the targeted linear layers. Raises ConfigError for one the model lacks."""
    linear = {path.rpartition(".")[2] for path in linear_layers(model)}
    names = linear if targets == ALL_LINEAR else set(targets)
    unknown = sorted(names - linear)
    if unknown or not names:
        raise ConfigError(
            f"cotrain.adapter.targets = {targets}: {type(model).__name__} has no linear layer {' or '.join(unknown)}",
            hint=f"its linear layers are {', '.join(sorted(linear)) or 'none'}",
        )
    return sorted(names)


def attach_adapters(model: PreTrainedModel, folder: Path) -> dict[str, nn.Parameter]:
    """Attach a checkpoint's adapters, at least fp32, to its base model and freeze all other weights.

    Raises CheckpointError if names or shapes of the folder's weights differ.
    """
    inject_adapter_in_model(adapter_config(folder), model)
    # The model's dtype: a layer in 4 bits has none to follow.
    wide = torch.promote_types(model.dtype, torch.float32)
    for parameter in trained_parameters(model).values():
        parameter.data = parameter.data.to(wide)
    return fill_adapters(model, folder)


def adapter_config(folder: Path) -> LoraConfig:
    """Read peft's settings of a checkpoint's adapters."""
    config: LoraConfig = LoraConfig.from_pretrained(str(folder))
    return config


def fill_adapters(model: PreTrainedModel, folder: Path) -> dict[str, nn.Parameter]:
    """Copy a checkpoint's adapters into the attached ones of a model, and return these."""
    adapters = trained_parameters(model)
    fill_tensors(rename_for_peft({name: parameter.data for name, parameter in adapters.items()}), folder / WEIGHTS)
    return adapters


@torch.no_grad()
def merge_adapters(model: PreTrainedModel, folder: Path) -> None:
    """Add a checkpoint's adapters to the weights of its base model, each sum rounded once to the model's dtype."""
    attach_adapters(model, folder)
    for path, layer in list(model.named_modules()):
        if isinstance(layer, Linear):
            base: Any = layer.get_base_layer()
            (name,) = layer.active_adapters
            delta = layer.get_delta_weight(name)
            base.weight.copy_(base.weight.to(delta.dtype) + delta)
            model.set_submodule(path, base)
    del model.peft_config
    model.requires_grad_(True)


def trained_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return a model's parameters that are not frozen, by name."""
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
