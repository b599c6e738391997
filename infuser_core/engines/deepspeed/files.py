"""Checkpoint and gradient files written and read by all ranks at once, each its own bytes.

The files are those of the local trainer, byte for byte: a safetensors header, then every parameter at its offset. A
fragment is a contiguous run of a parameter, so that any number of ranks writes and reads the same files. Ranks on
several machines need a shared file system.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from infuser_core.engines.deepspeed.shard import Fragment
from infuser_core.engines.training import laid_file
from infuser_core.engines.training.checkpoint import SHARD_BYTES, shard, shards_of, write_index
from infuser_core.engines.training.laid_file import Entry, create, put
from infuser_core.engines.training.tensor_files import Shapes
from infuser_core.errors import CheckpointError

ITEM = 4
"""Bytes of an fp32 element, the only kind trainers write."""

Values = Mapping[str, tuple[Fragment, Tensor]]
"""This rank's part of tensors, by their names in the file."""


def create_all(path: Path, shapes: Shapes, *, cap: int = SHARD_BYTES) -> None:
    """The file, or where the local trainer would write several, those and their index."""
    sizes = {name: torch.empty(shape, dtype=torch.float32, device="meta") for name, shape in shapes.items()}
    parts = shard(sizes, path, cap)
    for file, part in parts.items():
        create(file, {name: shapes[name] for name in part})
    write_index(parts, path)


def entries(path: Path) -> dict[str, Entry]:
    """Places of all tensors. Raises CheckpointError where a file is missing or holds anything but fp32."""
    found = {name: entry for each in shards_of(path) for name, entry in laid_file.entries(each).items()}
    for name, entry in found.items():
        if entry.dtype != torch.float32:
            raise CheckpointError(f"{name} in {entry.path} is not in fp32", hint="recompute it in fp32")
    return found


def fill(path: Path | None, values: Iterable[tuple[Fragment, Tensor]]) -> str:
    """Write this rank's fragments into a file that somebody has made, of any dtype; the reason where it cannot.

    Whatever happens, and without a file as well, `values` are taken to the end: others may take part in their making.
    """
    told, rest = "", iter(values)
    try:
        if path is not None:
            found = laid_file.entries(path)
            with path.open("r+b") as handle:
                for fragment, tensor in rest:
                    put(handle, found[fragment.name], fragment.start, tensor)
    except OSError as error:
        told = str(error)
    for _ in rest:
        pass
    return told


def write(path: Path, shapes: Shapes, values: Values, *, flush: bool) -> None:
    """Write together with all ranks: the first makes the files, each fills in its fragments.

    `flush`: whether it waits for the disk. A commit on the same machine does so for whatever was written there.
    """
    if dist.get_rank() == 0:
        create_all(path, shapes)
    dist.barrier()
    found = entries(path)
    for each in dict.fromkeys(entry.path for entry in found.values()):
        with each.open("r+b") as handle:
            for name, (fragment, tensor) in values.items():
                if found[name].path == each:
                    put(handle, found[name], fragment.start, tensor)
            handle.flush()
            if flush:
                os.fsync(handle.fileno())
    dist.barrier()


@torch.no_grad()
def read(path: Path, shapes: Shapes, targets: Values) -> None:
    """Fill this rank's fragments. Raises CheckpointError unless the files' names and shapes are those of the model."""
    found = entries(path)
    differing = sorted(set(shapes) ^ set(found))
    if differing:
        raise CheckpointError(f"{path} and the model disagree about {differing[:3]}", hint="load its own checkpoint")
    for name, shape in shapes.items():
        if found[name].shape != shape:
            shapes_said = f"{tuple(found[name].shape)}, not {tuple(shape)}"
            raise CheckpointError(f"{name} in {path} has shape {shapes_said}", hint="load the model's own checkpoint")
    for name, (fragment, target) in targets.items():
        entry = found[name]
        data = np.fromfile(entry.path, "<f4", count=fragment.length, offset=entry.offset + ITEM * fragment.start)
        if len(data) != fragment.length:
            raise CheckpointError(f"{entry.path} ends inside {name}", hint="the file is cut short: save it again")
        target.copy_(torch.from_numpy(data))
