"""Checkpoint folders of a trainer: weights, moments and step count, byte for byte repeatable.

`model.safetensors` holds the master weights, `optimizer.safetensors` both moments as `m.<parameter>` and
`v.<parameter>`, `trainer.json` the step and the optimizer's constants. Above `SHARD_BYTES` either of the first two is
several files and an index, in the layout that Hugging Face's readers know: `model-00001-of-00003.safetensors`, ...,
`model.safetensors.index.json`.
"""

import json
import math
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from infuser_core import faults
from infuser_core.durable import fsync
from infuser_core.engines.training.adamw import AdamWOptions
from infuser_core.errors import CheckpointError
from infuser_core.store import pruned

WEIGHTS = "model.safetensors"
MOMENTS = "optimizer.safetensors"
STATE = "trainer.json"
FORMAT = 1
SPLIT = (WEIGHTS, MOMENTS)
"""Files that become several when they are large; a kept gradient stays one."""
SHARD_BYTES = 5_000_000_000
"""Bytes of tensors per file. It decides what a checkpoint's files are called, so another value gives other digests."""
_CHECKPOINT = ("model", "optimizer", "trainer")
flush = fsync
"""Wait until a file's bytes are on the disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerState:
    """Contents of `trainer.json`."""

    step: int
    """Optimizer steps since the anchor."""
    optimizer: dict[str, float]
    """Constants of AdamW."""


def write_tensors(tensors: Mapping[str, Tensor], path: Path, *, cap: int = SHARD_BYTES) -> None:
    """Tensors in safetensors format, flushed to the disk: one file, or shards of at most `cap` bytes and their index.

    A tensor that is larger than that has a shard to itself. Order within and between shards is the mapping's.
    """
    shards = shard(tensors, cap) if path.name in SPLIT else [dict(tensors)]
    if len(shards) == 1:
        _save(shards[0], path)
        return
    names = [f"{path.stem}-{number:05d}-of-{len(shards):05d}{path.suffix}" for number in range(1, len(shards) + 1)]
    for name, part in zip(names, shards, strict=True):
        _save(part, path.with_name(name))
    places = {tensor: name for name, part in zip(names, shards, strict=True) for tensor in part}
    total = sum(tensor.nbytes for tensor in tensors.values())
    _write_text(_index(path), {"metadata": {"total_size": total}, "weight_map": places})


def shard(tensors: Mapping[str, Tensor], cap: int) -> list[dict[str, Tensor]]:
    """The tensors in groups of at most `cap` bytes, or of one tensor, in their order."""
    groups: list[dict[str, Tensor]] = [{}]
    room = cap
    for name, tensor in tensors.items():
        if groups[-1] and tensor.nbytes > room:
            groups.append({})
            room = cap
        groups[-1][name] = tensor
        room -= tensor.nbytes
    return groups


def _save(tensors: Mapping[str, Tensor], path: Path) -> None:
    # A single metadata key, because several have no fixed order.
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path, metadata={"format": "pt"})
    _done(path)


def _write_text(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")
    _done(path)


def _done(path: Path) -> None:
    fsync(path)
    if path.name.startswith(_CHECKPOINT):
        faults.point("checkpoint:file")


def _index(path: Path) -> Path:
    return path.with_name(f"{path.name}.index.json")


def shards_of(path: Path) -> list[Path]:
    """The files that hold what `path` stands for. Raises CheckpointError where it is missing, StoreError if pruned."""
    if path.is_file():
        return [path]
    pruned.refuse(path)
    pruned.refuse(_index(path))
    if not _index(path).is_file():
        raise CheckpointError(f"{path} is missing", hint=_REMEDY)
    found = [path.with_name(name) for name in json.loads(_index(path).read_text())["weight_map"].values()]
    for shard_path in dict.fromkeys(found):
        if not shard_path.is_file():
            pruned.refuse(shard_path)
            raise CheckpointError(f"{shard_path} is missing", hint=_REMEDY)
    return list(dict.fromkeys(found))


def read_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a file or of its shards, on the CPU. Raises CheckpointError where it is missing."""
    return {name: tensor for part in shards_of(path) for name, tensor in load_file(part).items()}


def write_state(state: TrainerState, folder: Path) -> None:
    """`trainer.json`, flushed to the disk."""
    content = {"format": FORMAT, "step": state.step, "optimizer": state.optimizer}
    _write_text(folder / STATE, content)


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
    """Both moments under one name."""
    named = {f"m.{name}": tensor for name, tensor in first.items()}
    write_tensors(named | {f"v.{name}": tensor for name, tensor in second.items()}, folder / MOMENTS)


def read_moments(first: Mapping[str, Tensor], second: Mapping[str, Tensor], folder: Path) -> None:
    """Fill the given tensors from a folder. Raises CheckpointError unless names and shapes agree."""
    wanted = {f"m.{name}": tensor for name, tensor in first.items()}
    _fill_from_disk(wanted | {f"v.{name}": tensor for name, tensor in second.items()}, folder / MOMENTS)


@torch.no_grad()
def fill(targets: Mapping[str, Tensor], stored: Mapping[str, Tensor], path: Path) -> None:
    """Copy stored tensors into targets of the same names and shapes. Raises CheckpointError where they differ."""
    _refuse_others(targets, set(stored), path, "load its own checkpoint")
    for name, target in targets.items():
        _copy(stored[name], target, name, path)


@torch.no_grad()
def _fill_from_disk(targets: Mapping[str, Tensor], path: Path) -> None:
    """`fill`, one tensor at a time: moments are twice as large as the model."""
    with ExitStack() as stack:
        opened = [stack.enter_context(safe_open(part, framework="pt")) for part in shards_of(path)]
        places = {name: part for part in opened for name in part.keys()}  # noqa: SIM118
        _refuse_others(targets, set(places), path, "load its own checkpoint")
        for name, target in targets.items():
            _copy(places[name].get_tensor(name), target, name, path)


def _refuse_others(targets: Mapping[str, Tensor], stored: set[str], path: Path, remedy: str) -> None:
    differing = sorted(set(targets) ^ stored)
    if differing:
        raise CheckpointError(f"{path} and the model disagree about {differing[:3]}", hint=remedy)


def _copy(stored: Tensor, target: Tensor, name: str, path: Path) -> None:
    if stored.shape != target.shape:
        shapes = f"{tuple(stored.shape)}, not {tuple(target.shape)}"
        raise CheckpointError(f"{name} in {path} has shape {shapes}", hint="load the model's own checkpoint")
    target.copy_(stored)


def read_reference(path: Path, targets: Mapping[str, Tensor]) -> None:
    """Fill the given tensors from a kept gradient, one at a time: it is as large as the model."""
    if not path.is_file():
        raise CheckpointError(f"the reference gradient {path} is missing", hint="run the dev_gradient phase first")
    with safe_open(path, framework="pt") as stored:
        _refuse_others(targets, set(stored.keys()), path, "recompute it")
        for name, target in targets.items():
            target.copy_(stored.get_tensor(name))


_REMEDY = "influence needs AdamW's moments: create the folder with prepare_anchor, or load one a trainer saved"


def refuse_other_constants(options: AdamWOptions, state: TrainerState, folder: Path) -> None:
    """Moments of other decay rates mean something else; before the first step there are none.

    Raises CheckpointError.
    """
    for key in ("beta1", "beta2", "eps"):
        mine, stored = options.to_json()[key], state.optimizer.get(key)
        if state.step and (stored is None or not math.isclose(mine, stored)):
            raise CheckpointError(
                f"{folder} was trained with {key} {stored}, and the trainer is set to {mine}",
                hint="keep the optimizer's constants for a whole run",
            )
