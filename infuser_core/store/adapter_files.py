"""Adapter checkpoints: their files, the names in them, and where the base model lies.

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
"""File of their settings."""
WEIGHTS = "adapter_model.safetensors"
"""File of their weights."""
NAMED = "base_model_name_or_path"
"""Key of the settings that names the base model."""

Value = TypeVar("Value")


def pointer(base: Path) -> str:
    """The path from any checkpoint of the same store to the artifact of a base model."""
    return f"../../{base.parent.name}/{base.name}"


def base_of(folder: Path) -> Path | None:
    """Folder of the base model of an adapter checkpoint; None where `folder` holds a whole model.

    Raises CheckpointError where the base is not there.
    """
    path = folder / CONFIG
    if not path.is_file():
        return None
    named = json.loads(path.read_text(encoding="utf-8")).get(NAMED) or ""
    base = (folder / named).resolve()
    if not named or not (base / "config.json").is_file():
        raise CheckpointError(
            f"{folder} holds an adapter, and its base model {named or '(none named)'} is not there",
            hint="keep it in its store, or `infuser export` the checkpoint as a whole model",
        )
    return base


def peft_names(weights: Mapping[str, Value]) -> dict[str, Value]:
    """Adapters under the names of their file, by the names of a model's parameters."""
    return {f"base_model.model.{name.replace('.default.', '.')}": each for name, each in weights.items()}
