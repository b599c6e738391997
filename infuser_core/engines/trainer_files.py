"""What a trainer writes and reads: weights, moments and step count in a checkpoint folder, byte for byte repeatable.

`model.safetensors` holds the master weights, `optimizer.safetensors` both moments as `m.<parameter>` and
`v.<parameter>`, `trainer.json` the step and the optimizer's constants.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from infuser_core.errors import CheckpointError

WEIGHTS = "model.safetensors"
MOMENTS = "optimizer.safetensors"
STATE = "trainer.json"
FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerState:
    """Contents of `trainer.json`."""

    step: int
    """Optimizer steps since the anchor."""
    optimizer: dict[str, float]
    """Constants of AdamW."""


def write_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    """One safetensors file, flushed to the disk. A single metadata key, because several have no fixed order."""
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path, metadata={"format": "pt"})
    flush(path)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a file, on the CPU. Raises CheckpointError where it is missing."""
    if not path.is_file():
        raise CheckpointError(f"{path} is missing", hint=_REMEDY)
    return load_file(path)


def write_state(state: TrainerState, folder: Path) -> None:
    """`trainer.json`, flushed to the disk."""
    content = {"format": FORMAT, "step": state.step, "optimizer": state.optimizer}
    path = folder / STATE
    path.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")
    flush(path)


def read_state(folder: Path) -> TrainerState:
    """`trainer.json` of a folder. Raises CheckpointError where it is missing or of another format."""
    path = folder / STATE
    if not path.is_file():
        raise CheckpointError(f"{folder} holds no optimizer state ({STATE} is missing)", hint=_REMEDY)
    content = json.loads(path.read_text())
    if content.get("format") != FORMAT:
        raise CheckpointError(
            f"{path} has format {content.get('format')!r}, not {FORMAT}", hint="load it with the version that wrote it"
        )
    return TrainerState(step=int(content["step"]), optimizer=dict(content["optimizer"]))


def write_moments(first: Mapping[str, Tensor], second: Mapping[str, Tensor], folder: Path) -> None:
    """Both moments in one file."""
    named = {f"m.{name}": tensor for name, tensor in first.items()}
    write_tensors(named | {f"v.{name}": tensor for name, tensor in second.items()}, folder / MOMENTS)


def read_moments(first: Mapping[str, Tensor], second: Mapping[str, Tensor], folder: Path) -> None:
    """Fill the given tensors from a folder. Raises CheckpointError unless names and shapes agree."""
    stored = read_tensors(folder / MOMENTS)
    wanted = {f"m.{name}": tensor for name, tensor in first.items()}
    fill(wanted | {f"v.{name}": tensor for name, tensor in second.items()}, stored, folder / MOMENTS)


@torch.no_grad()
def fill(targets: Mapping[str, Tensor], stored: Mapping[str, Tensor], path: Path) -> None:
    """Copy stored tensors into targets of the same names and shapes. Raises CheckpointError where they differ."""
    differing = sorted(set(targets) ^ set(stored))
    if differing:
        raise CheckpointError(f"{path} and the model disagree about {differing[:3]}", hint="load its own checkpoint")
    for name, target in targets.items():
        if stored[name].shape != target.shape:
            shapes = f"{tuple(stored[name].shape)}, not {tuple(target.shape)}"
            raise CheckpointError(f"{name} in {path} has shape {shapes}", hint="load the model's own checkpoint")
        target.copy_(stored[name])


def read_reference(path: Path, targets: Mapping[str, Tensor]) -> None:
    """Fill the given tensors from a kept gradient, one at a time: it is as large as the model."""
    if not path.is_file():
        raise CheckpointError(f"the reference gradient {path} is missing", hint="run the dev_gradient phase first")
    with safe_open(path, framework="pt") as stored:
        differing = sorted(set(targets) ^ set(stored.keys()))
        if differing:
            raise CheckpointError(f"{path} and the model disagree about {differing[:3]}", hint="recompute it")
        for name, target in targets.items():
            target.copy_(stored.get_tensor(name))


def flush(path: Path) -> None:
    """Wait until a file's bytes are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


_REMEDY = "influence needs AdamW's moments: create the folder with prepare_anchor, or load one a trainer saved"
