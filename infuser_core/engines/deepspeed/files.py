"""Checkpoint and gradient files that all ranks of the DeepSpeed trainer write and read in parallel.

The files are those of the local trainer, byte for byte: a safetensors header, then every parameter at its offset. A
fragment is a contiguous run of a parameter, so that any number of ranks writes and reads the same files. Ranks on
several machines need a shared file system.
"""

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice, zip_longest
from pathlib import Path
from queue import Queue

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from infuser_core.engines.deepspeed.shard import Fragment, Shard
from infuser_core.engines.training import checkpoint
from infuser_core.engines.training.tensor_files import Shapes, allocate_file, read_entries, write_run, write_stream
from infuser_core.errors import CheckpointError

ITEM = 4
"""Bytes of an fp32 element, the only kind trainers write."""

Contents = Mapping[str, tuple[str, Tensor]]
"""Tensors of a file by name: the parameter of each, and the shard's buffer with this rank's part of its values."""


def fill(path: Path | None, values: Iterable[tuple[Fragment, Tensor]]) -> str:
    """Write this rank's fragments to an allocated file of any dtype; returns an error's text, or an empty one.

    `values` are always exhausted, even without a file: other ranks may take part in computing them.
    """
    failure, remaining = "", iter(values)
    try:
        if path is not None:
            places = read_entries(path)
            with path.open("r+b") as handle:
                for fragment, tensor in remaining:
                    write_run(handle, places[fragment.name], fragment.start, tensor)
    except OSError as error:
        failure = str(error)
    for _ in remaining:
        pass
    return failure


def write(
    contents: Mapping[Path, Contents],
    shard: Shard,
    *,
    at_once: bool,
    cap: int = checkpoint.SHARD_BYTES,
) -> dict[str, str]:
    """Write files together with all ranks; like the local trainer, splits a large one into several and an index.

    With `at_once` each rank gathers, hashes and flushes whole files, and their sha256 digests are returned by path.
    Without, each rank writes its fragments to the machine's page cache, and the commit hashes and flushes the files.
    """
    split = {}
    for path, file in contents.items():
        shapes = _shapes(file, shard).items()
        without_values = {name: torch.empty(shape, dtype=torch.float32, device="meta") for name, shape in shapes}
        split[path] = checkpoint.shard(without_values, path, cap)
    work = {
        file: {name: contents[path][name] for name in sorted(part)}
        for path, parts in split.items()
        for file, part in parts.items()
    }
    digests = _write_whole_files(work, shard) if at_once else _write_fragments(work, shard)
    if dist.get_rank() == 0:
        for path, parts in split.items():
            checkpoint.write_index(parts, path)
    dist.barrier()
    return digests


def _shapes(contents: Contents, shard: Shard) -> Shapes:
    return {name: shard.shapes[parameter] for name, (parameter, _) in contents.items()}


def _write_fragments(work: Mapping[Path, Contents], shard: Shard) -> dict[str, str]:
    """Write this rank's fragments of every file; returns no digests."""
    if dist.get_rank() == 0:
        for path, contents in work.items():
            allocate_file(path, _shapes(contents, shard))
    dist.barrier()
    for path, contents in work.items():
        places = read_entries(path)
        with path.open("r+b") as handle:
            for name, values in contents.items():
                if mine := shard.mine(*values):
                    write_run(handle, places[name], mine[0].start, mine[1])
    return {}


def _write_whole_files(work: Mapping[Path, Contents], shard: Shard) -> dict[str, str]:
    """Gather and write this rank's share of the files; returns their sha256 by path."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    files, arrivals = list(work), Queue[Tensor | None](maxsize=1)
    # One tensor of each rank's files in turn, so that all ranks hash at the same time.
    turns = zip_longest(*(chain.from_iterable(work[path].values() for path in files[of::ranks]) for of in range(ranks)))
    with ThreadPoolExecutor(1) as pool:
        shapes = {path: _shapes(work[path], shard) for path in files[rank::ranks]}
        writing = pool.submit(_write, shapes, arrivals)
        for turn in turns:
            for owner, values in enumerate(turn):
                whole = None if values is None else shard.whole(*values)
                if owner == rank and whole is not None:
                    arrivals.put(whole)
        arrivals.put(None)
        return writing.result()


def _write(shapes: Mapping[Path, Shapes], arrivals: "Queue[Tensor | None]") -> dict[str, str]:
    """Write files from tensors as they arrive. Empties the queue even after a failure, so that no rank waits."""
    tensors = iter(arrivals.get, None)
    try:
        return {
            str(path): write_stream(path, names, torch.float32, islice(tensors, len(names)))
            for path, names in shapes.items()
        }
    finally:
        for _ in tensors:
            pass


@torch.no_grad()
def read(path: Path, contents: Contents, shard: Shard) -> None:
    """Read this rank's fragments of a file or of its shards into the shard's buffers.

    Raises CheckpointError if files are missing, or if names, shapes or dtypes are not those of the model in fp32.
    """
    places = {name: entry for file in checkpoint.shards_of(path) for name, entry in read_entries(file).items()}
    shapes = _shapes(contents, shard)
    differing = sorted(set(shapes) ^ set(places))
    if differing:
        raise CheckpointError(f"{path} and the model disagree about {differing[:3]}", hint="load its own checkpoint")
    for name, shape in shapes.items():
        entry = places[name]
        if entry.dtype != torch.float32:
            raise CheckpointError(f"{name} in {entry.path} is not in fp32", hint="recompute it in fp32")
        if entry.shape != shape:
            text = f"{name} in {path} has shape {tuple(entry.shape)}, not {tuple(shape)}"
            raise CheckpointError(text, hint="load the model's own checkpoint")
    for name, values in contents.items():
        entry, mine = places[name], shard.mine(*values)
        if mine is None:
            continue
        fragment, target = mine
        data = np.fromfile(entry.path, "<f4", count=fragment.length, offset=entry.offset + ITEM * fragment.start)
        if len(data) != fragment.length:
            raise CheckpointError(f"{entry.path} ends inside {name}", hint="the file is cut short: save it again")
        target.copy_(torch.from_numpy(data))
