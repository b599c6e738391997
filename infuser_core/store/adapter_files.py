"""Adapter checkpoints: their files, the names in them, and the path of the base model.

An adapter checkpoint holds `adapter_config.json` and `adapter_model.safetensors` in peft's layout instead of a model's
weights. Its `base_model_name_or_path` is a path from its own folder to the artifact of the base model, so that a store
can be moved, and peft finds the base from within the folder.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from infuser_core.errors import CheckpointError

CONFIG = "adapter_config.json"
"""File with the settings."""
WEIGHTS = "adapter_model.safetensors"
"""File with the weights."""
BASE_KEY = "base_model_name_or_path"
"""Key of the settings that names the base model."""

Value = TypeVar("Value")


def base_pointer(base: Path) -> str:
    """The path from any checkpoint of the same store to the artifact of a base model."""
    return f"../../{base.parent.name}/{base.name}"


def base_folder(folder: Path) -> Path | None:
    """Folder of the base model of an adapter checkpoint; None if `folder` holds a whole model.

    Raises CheckpointError if the base model is missing.
    """
    path = folder / CONFIG
    if not path.is_file():
        return None
    name = json.loads(path.read_text(encoding="utf-8")).get(BASE_KEY) or ""
    base = (folder / name).resolve()
    if not name or not (base / "config.json").is_file():
        raise CheckpointError(
            f"{folder} holds an adapter, and its base model {name or '(none named)'} is not there",
            hint="keep it in its store, or `infuser export` the checkpoint as a whole model",
        )
    return base


def rename_for_peft(weights: Mapping[str, Value]) -> dict[str, Value]:
    """Rename adapters from a model's parameter names to those of peft's file."""
    return {f"base_model.model.{name.replace('.default.', '.')}": each for name, each in weights.items()}
