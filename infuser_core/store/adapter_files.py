"""File layout of adapter (LoRA) checkpoints: file names, parameter names, and the path to the base model.

An adapter checkpoint holds `adapter_config.json` and `adapter_model.safetensors` in peft's layout instead of a model's
weights. Its `base_model_name_or_path` is a path relative to its own folder, so that a store can be moved; peft finds
the base model if the folder is the working folder.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from infuser_core.errors import CheckpointError
from infuser_core.system.durable import fsync

CONFIG = "adapter_config.json"
"""File with the adapter's settings."""
WEIGHTS = "adapter_model.safetensors"
"""File with the adapter's weights."""
BASE_KEY = "base_model_name_or_path"
"""Key in the settings file whose value is the path to the base model."""

PACKING = {
    "quant_method": "bitsandbytes",
    "load_in_4bit": True,
    "bnb_4bit_quant_type": "nf4",
    "bnb_4bit_use_double_quant": True,
}
"""Value of `quantization_config` in the config.json of a checkpoint whose adapters are trained on a 4-bit base model.

The base model's own files stay as they are: it is converted each time it is loaded.
"""

Value = TypeVar("Value")


def base_pointer(base: Path) -> str:
    """Relative path to a base model from any checkpoint of the same store."""
    return f"../../{base.parent.name}/{base.name}"


def read_adapter(folder: Path) -> dict[str, Any] | None:
    """Read peft's settings of an adapter checkpoint; None if `folder` holds a full model."""
    path = folder / CONFIG
    if not path.is_file():
        return None
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def base_folder(folder: Path) -> Path | None:
    """Folder of an adapter checkpoint's base model; None if `folder` holds a full model.

    Raises CheckpointError if the base model is missing.
    """
    adapter = read_adapter(folder)
    if adapter is None:
        return None
    name = adapter.get(BASE_KEY) or ""
    base = (folder / name).resolve()
    if not name or not (base / "config.json").is_file():
        raise CheckpointError(
            f"{folder} holds an adapter, and its base model {name or '(none named)'} is not there",
            hint="keep it in its store, or `infuser export` the checkpoint as a whole model",
        )
    return base


def record_packing(folder: Path) -> None:
    """Note in the config.json of an adapter checkpoint that its base model is used in 4 bits; flushed."""
    path = folder / "config.json"
    content = json.loads(path.read_text(encoding="utf-8")) | {"quantization_config": PACKING}
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    fsync(path)


def is_packed(folder: Path) -> bool:
    """Return whether `folder` is an adapter checkpoint whose base model is used in 4 bits."""
    if read_adapter(folder) is None:
        return False
    content = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return bool(content.get("quantization_config") == PACKING)


def read_scale(folder: Path) -> float:
    """Read the factor of an adapter checkpoint's product B A: alpha / r."""
    adapter = read_adapter(folder) or {}
    return float(adapter["lora_alpha"] / adapter["r"])


def rename_for_peft(weights: Mapping[str, Value]) -> dict[str, Value]:
    """Rename adapter weights from the model's parameter names to the names in peft's file."""
    return {f"base_model.model.{name.replace('.default.', '.')}": each for name, each in weights.items()}
