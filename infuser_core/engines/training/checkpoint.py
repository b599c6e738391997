"""Write and read a trainer's checkpoint folders: weights, moments and step count, byte for byte repeatable.

`model.safetensors` holds the master weights, `optimizer.safetensors` the optimizer's moments as `m.<parameter>` and
`v.<parameter>`, `trainer.json` the step and the optimizer's constants. Above `SHARD_BYTES` either of the first two is
several files and an index in the layout of Hugging Face: `model-00001-of-00003.safetensors`, ...,
`model.safetensors.index.json`. For a model with adapters, `adapter_model.safetensors` replaces `model.safetensors` and
holds only the adapters, under peft's names (see infuser_core.store.adapter_files).
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from infuser_core.config.optimizers import DEFAULT, Options
from infuser_core.engines.model_files import shard_names
from infuser_core.engines.training import tensor_files
from infuser_core.errors import CheckpointError
from infuser_core.store import adapter_files as adapters
from infuser_core.store import pruned
from infuser_core.store.verify import remember_digest
from infuser_core.system import fault_points as faults
from infuser_core.system.durable import fsync

WEIGHTS = "model.safetensors"
MOMENTS = "optimizer.safetensors"
STATE = "trainer.json"
FORMAT = 1
SPLIT = (WEIGHTS, MOMENTS)
"""Files that are split into shards if they are large; a stored gradient is always one file."""
SHARD_BYTES = 5_000_000_000
"""Bytes of tensors per file. The names of a checkpoint's files, and thus digests, depend on it."""
_CHECKPOINT = ("model", "adapter_model", "optimizer", "trainer")
_REMEDY = "influence needs AdamW's moments: create the folder with prepare_anchor, or load one a trainer saved"

Tensors = Mapping[str, Tensor]
"""Tensors by the names of their parameters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerState:
    """Step count and optimizer constants of a checkpoint, the contents of `trainer.json`."""

    step: int
    """Optimizer steps since the anchor."""
    optimizer: dict[str, Any]
    """Constants of the optimizer, and its name if it is not AdamW."""


def write_checkpoint(
    folder: Path,
    *,
    weights: Tensors,
    moments: Tensors,
    state: TrainerState,
    adapter: bool = False,
    at_once: bool = True,
) -> None:
    """Write a checkpoint: weights (of adapters alone if `adapter`), optimizer moments and `trainer.json`.

    With `at_once` large files are hashed and flushed; without, the commit does so.
    """
    file, tensors = (adapters.WEIGHTS, adapters.rename_for_peft(weights)) if adapter else (WEIGHTS, weights)
    _write_files({folder / file: tensors, folder / MOMENTS: moments}, SHARD_BYTES, at_once=at_once)
    write_state(state, folder)


def write_tensors(tensors: Tensors, path: Path, *, cap: int = SHARD_BYTES, at_once: bool = True) -> None:
    """Write tensors as safetensors: one file, or shards of at most `cap` bytes or one tensor, and an index.

    With `at_once` files are hashed and flushed; without, the commit does so.
    """
    _write_files({path: tensors}, cap, at_once=at_once)


def _write_files(contents: Mapping[Path, Tensors], cap: int, *, at_once: bool) -> None:
    """Write files, register their digests with the store if they are hashed, and write the indices of split files."""
    shards = {path: shard(tensors, path, cap) for path, tensors in contents.items()}
    files = {file: part for each in shards.values() for file, part in each.items()}
    if at_once:
        for file, sha256 in tensor_files.write_files(files):
            register_file(file, sha256)
    else:
        for file, part in files.items():
            tensor_files.write_to_cache(file, part)
            _hit_fault_point(file)
    for path, parts in shards.items():
        write_index(parts, path)


def register_file(file: Path, sha256: str) -> None:
    """Register the digest of a complete file with the store, so that the commit need not read the file again."""
    remember_digest(file, sha256)
    _hit_fault_point(file)


def shard(tensors: Tensors, path: Path, cap: int = SHARD_BYTES) -> dict[Path, dict[str, Tensor]]:
    """Split tensors, in their order, into `path` or several shards, each of at most `cap` bytes or one tensor."""
    groups: list[dict[str, Tensor]] = [{}]
    room = cap
    for name, tensor in tensors.items():
        if path.name in SPLIT and groups[-1] and tensor.nbytes > room:
            groups.append({})
            room = cap
        groups[-1][name] = tensor
        room -= tensor.nbytes
    if len(groups) == 1:
        return {path: groups[0]}
    names = [f"{path.stem}-{number:05d}-of-{len(groups):05d}{path.suffix}" for number in range(1, len(groups) + 1)]
    return {path.with_name(name): part for name, part in zip(names, groups, strict=True)}


def write_index(shards: Mapping[Path, Tensors], path: Path) -> None:
    """Write the index of several shards, in the layout of Hugging Face; a single file needs none."""
    if len(shards) > 1:
        total = sum(tensor.nbytes for part in shards.values() for tensor in part.values())
        places = {name: file.name for file, part in shards.items() for name in part}
        _write_json(_index_path(path), {"metadata": {"total_size": total}, "weight_map": places})


def _write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")
    fsync(path)
    _hit_fault_point(path)


def _hit_fault_point(path: Path) -> None:
    if path.name.startswith(_CHECKPOINT):
        faults.point("checkpoint:file")


def _index_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.index.json")


def shards_of(path: Path) -> list[Path]:
    """List the file `path`, or its shards. Raises CheckpointError if one is missing, StoreError if it was pruned."""
    if path.is_file():
        return [path]
    pruned.refuse_pruned(path)
    pruned.refuse_pruned(_index_path(path))
    if not _index_path(path).is_file():
        raise CheckpointError(f"{path} is missing", hint=_REMEDY)
    shards = [path.parent / name for name in shard_names(_index_path(path))]
    for shard_path in shards:
        if not shard_path.is_file():
            pruned.refuse_pruned(shard_path)
            raise CheckpointError(
                f"{shard_path} is missing", hint=f"{_index_path(path).name} names it: copy the folder again"
            )
    return shards


def count_weights(folder: Path, name: str = WEIGHTS) -> int | None:
    """Count the weights in a model folder by the headers of its files; None if they are not safetensors."""
    if not any((folder / each).is_file() for each in (name, _index_path(Path(name)).name)):
        return None
    total = 0
    for path in shards_of(folder / name):
        try:
            with safe_open(path, framework="pt") as file:
                total += sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118
        except SafetensorError as error:
            raise CheckpointError(f"{path} cannot be read: {error}", hint="fetch the model again") from error
    return total


def write_state(state: TrainerState, folder: Path) -> None:
    """Write `trainer.json`, flushed to the disk."""
    _write_json(folder / STATE, {"format": FORMAT, "step": state.step, "optimizer": state.optimizer})


def read_state(folder: Path, options: Options | None = None) -> TrainerState:
    """Read a folder's `trainer.json`.

    Raises CheckpointError if it is missing, has another format, or its moments were accumulated with other constants
    than `options`.
    """
    path = folder / STATE
    if not path.is_file():
        raise CheckpointError(f"{folder} holds no optimizer state ({STATE} is missing)", hint=_REMEDY)
    content = json.loads(path.read_text())
    if content.get("format") != FORMAT:
        raise CheckpointError(
            f"{path} has format {content.get('format')!r}, not {FORMAT}", hint="load it with the version that wrote it"
        )
    state = TrainerState(step=int(content["step"]), optimizer=dict(content["optimizer"]))
    # Before the first step there are no moments.
    if options is not None and state.step:
        _refuse_other_constants(options, state, folder)
    return state


def _refuse_other_constants(options: Options, state: TrainerState, folder: Path) -> None:
    trained = state.optimizer.get("name", DEFAULT)
    if trained != options.name:
        raise CheckpointError(
            f"{folder} was trained with {trained}, and the trainer is set to {options.name}",
            hint="keep the optimizer for a whole run",
        )
    for key in options.kept:
        current, stored = getattr(options, key), state.optimizer.get(key)
        if stored is None or not math.isclose(current, stored):
            raise CheckpointError(
                f"{folder} was trained with {key} {stored}, and the trainer is set to {current}",
                hint="keep the optimizer's constants for a whole run",
            )


def read_reference(path: Path, targets: Tensors) -> None:
    """Fill `targets` from the file of a stored gradient. Raises CheckpointError unless names and shapes agree."""
    if not path.is_file():
        raise CheckpointError(f"the reference gradient {path} is missing", hint="run the dev_gradient phase first")
    fill_tensors(targets, path, remedy="recompute it")


def places_in(path: Path) -> dict[str, Path]:
    """File of every tensor of `path` or of its shards, by name."""
    places: dict[str, Path] = {}
    for file in shards_of(path):
        with safe_open(file, framework="pt") as handle:
            places |= dict.fromkeys(handle.keys(), file)
    return places


@torch.no_grad()
def fill_tensors(targets: Tensors, path: Path, *, remedy: str = "load its own checkpoint") -> None:
    """Copy the tensors of `path` or of its shards into `targets`. Raises CheckpointError unless names and shapes agree.

    Reads one tensor at a time: moments are twice as large as the model.
    """
    places = places_in(path)
    differing = sorted(set(targets) ^ set(places))
    if differing:
        raise CheckpointError(f"{path} and the model disagree about {differing[:3]}", hint=remedy)
    for name, target in targets.items():
        # Reopened for each tensor: pages that were read stay in memory until the file is closed.
        with safe_open(places[name], framework="pt") as handle:
            stored = handle.get_tensor(name)
            if stored.shape != target.shape:
                shapes = f"{tuple(stored.shape)}, not {tuple(target.shape)}"
                raise CheckpointError(f"{name} in {path} has shape {shapes}", hint=remedy)
            target.copy_(stored)
            del stored
