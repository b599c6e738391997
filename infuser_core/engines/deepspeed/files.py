"""Checkpoint and gradient files written and read by all ranks at once: each its own bytes, or files of its own.

The files are those of the local trainer, byte for byte: a safetensors header, then every parameter at its offset. A
fragment is a contiguous run of a parameter, so that any number of ranks writes and reads the same files. Ranks on
several machines need a shared file system.
"""

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, zip_longest
from pathlib import Path
from queue import Queue

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from infuser_core.engines.deepspeed.shard import Fragment, Shard
from infuser_core.engines.training import checkpoint
from infuser_core.engines.training.tensor_files import Shapes, create, entries, put, write_as_they_come
from infuser_core.errors import CheckpointError

ITEM = 4
"""Bytes of an fp32 element, the only kind trainers write."""

Held = Mapping[str, tuple[str, Tensor]]
"""Tensors by their names in a file: each a parameter, and the shard's buffer with this rank's part of its values."""


def fill(path: Path | None, values: Iterable[tuple[Fragment, Tensor]]) -> str:
    """Write this rank's fragments into a file that somebody has made, of any dtype; the reason where it cannot.

    Whatever happens, and without a file as well, `values` are taken to the end: others may take part in their making.
    """
    told, rest = "", iter(values)
    try:
        if path is not None:
            found = entries(path)
            with path.open("r+b") as handle:
                for fragment, tensor in rest:
                    put(handle, found[fragment.name], fragment.start, tensor)
    except OSError as error:
        told = str(error)
    for _ in rest:
        pass
    return told


def write(
    contents: Mapping[Path, Held],
    shard: Shard,
    *,
    at_once: bool,
    cap: int = checkpoint.SHARD_BYTES,
) -> dict[str, str]:
    """Write together with all ranks. Each path becomes several files, and an index, where the local trainer's would.

    `at_once`: in one pass as there. Each rank gathers, hashes and flushes files of its own; the result are their
    digests. Else it leaves its fragments in the machine's page cache, and a commit does the rest.
    """
    split = {path: checkpoint.shard(_like(held, shard), path, cap) for path, held in contents.items()}
    work = {
        file: {name: contents[path][name] for name in sorted(part)}
        for path, parts in split.items()
        for file, part in parts.items()
    }
    found = _gathered(work, shard) if at_once else _filled(work, shard)
    if dist.get_rank() == 0:
        for path, parts in split.items():
            checkpoint.write_index(parts, path)
    dist.barrier()
    return found


def _like(held: Held, shard: Shard) -> dict[str, Tensor]:
    """Tensors without values, as a file will have them."""
    shapes = {name: shard.shapes[parameter] for name, (parameter, _) in held.items()}
    return {name: torch.empty(shape, dtype=torch.float32, device="meta") for name, shape in shapes.items()}


def _shapes(held: Held, shard: Shard) -> Shapes:
    return {name: each.shape for name, each in _like(held, shard).items()}


def _filled(work: Mapping[Path, Held], shard: Shard) -> dict[str, str]:
    """Each rank its fragments of every file; no digests."""
    if dist.get_rank() == 0:
        for path, held in work.items():
            create(path, _shapes(held, shard))
    dist.barrier()
    for path, held in work.items():
        found = entries(path)
        with path.open("r+b") as handle:
            for name, each in held.items():
                if mine := shard.mine(*each):
                    put(handle, found[name], mine[0].start, mine[1])
    return {}


def _gathered(work: Mapping[Path, Held], shard: Shard) -> dict[str, str]:
    """Each rank whole files; the sha256 of its own."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    files, arrivals = list(work), Queue[Tensor | None](maxsize=1)
    # In turns, so that all ranks hash at the same time.
    turns = zip_longest(*(chain.from_iterable(work[path].values() for path in files[of::ranks]) for of in range(ranks)))
    with ThreadPoolExecutor(1) as pool:
        shapes = {path: _shapes(work[path], shard) for path in files[rank::ranks]}
        writing = pool.submit(_write, shapes, arrivals)
        for turn in turns:
            for owner, held in enumerate(turn):
                whole = None if held is None else shard.whole(*held)
                if owner == rank and whole is not None:
                    arrivals.put(whole)
        arrivals.put(None)
        return writing.result()


def _write(shapes: Mapping[Path, Shapes], arrivals: "Queue[Tensor | None]") -> dict[str, str]:
    """Files from tensors as they arrive. What keeps it from writing must not keep others from sending."""
    try:
        return {
            str(path): write_as_they_come(path, each, torch.float32, (_next(arrivals) for _ in each))
            for path, each in shapes.items()
        }
    finally:
        while arrivals.get() is not None:
            pass


def _next(arrivals: "Queue[Tensor | None]") -> Tensor:
    found = arrivals.get()
    assert found is not None
    return found


@torch.no_grad()
def read(path: Path, held: Held, shard: Shard) -> None:
    """Fill this rank's fragments. Raises CheckpointError where files are missing, and unless names and shapes are those
    of the model, all of them in fp32."""
    found = {name: entry for each in checkpoint.shards_of(path) for name, entry in entries(each).items()}
    shapes = _shapes(held, shard)
    differing = sorted(set(shapes) ^ set(found))
    if differing:
        raise CheckpointError(f"{path} and the model disagree about {differing[:3]}", hint="load its own checkpoint")
    for name, shape in shapes.items():
        if found[name].dtype != torch.float32:
            raise CheckpointError(f"{name} in {found[name].path} is not in fp32", hint="recompute it in fp32")
        if found[name].shape != shape:
            shapes_said = f"{tuple(found[name].shape)}, not {tuple(shape)}"
            raise CheckpointError(f"{name} in {path} has shape {shapes_said}", hint="load the model's own checkpoint")
    for name, each in held.items():
        entry, mine = found[name], shard.mine(*each)
        if mine is None:
            continue
        fragment, target = mine
        data = np.fromfile(entry.path, "<f4", count=fragment.length, offset=entry.offset + ITEM * fragment.start)
        if len(data) != fragment.length:
            raise CheckpointError(f"{entry.path} ends inside {name}", hint="the file is cut short: save it again")
        target.copy_(torch.from_numpy(data))
