"""Write safetensors files, from several processes in parallel or in one pass that also hashes and flushes them.

A large file bypasses the page cache, where a copy costs more than the disk, and is hashed while it is written, so that
it need not be read again. The bytes are those of safetensors' own writer.
"""

import errno
import hashlib
import json
import mmap
import os
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fcntl import F_SETFL, fcntl
from itertools import chain
from math import prod
from pathlib import Path
from queue import SimpleQueue
from typing import IO

import torch
from torch import Tensor

BLOCK = 8 << 20
"""Bytes per write; a multiple of every disk's unit."""
PAGE = 4096
"""Unit of writes that bypass the page cache, bytes; a file needs at most this much more room while it is written."""
BLOCKS = 3
"""Blocks of a file in memory: one is filled and hashed while another is written."""
LARGE = 64 << 20
"""Bytes from which a file bypasses the page cache, and files are written in parallel."""
FILES = min(16, os.cpu_count() or 1)
"""Large files written at the same time: hashing one keeps a core busy."""
KINDS = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.uint8: "U8"}
_BYPASS_CACHE = getattr(os, "O_DIRECT", 0)

Shapes = Mapping[str, torch.Size]
"""Shapes of the tensors of a file by name."""


def build_header(shapes: Shapes, dtype: torch.dtype) -> bytes:
    """Build the header of a file of tensors of one dtype; the values follow in the order of the names."""
    content: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name in sorted(shapes):
        start, end = end, end + dtype.itemsize * prod(shapes[name])
        content[name] = {"dtype": KINDS[dtype], "shape": list(shapes[name]), "data_offsets": [start, end]}
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()
    # Values start at a multiple of 8 bytes; the format pads with spaces.
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorEntry:
    """Position, shape and dtype of a tensor in a file."""

    path: Path
    shape: torch.Size
    offset: int
    """First byte of its values in the file."""
    dtype: torch.dtype


def read_entries(path: Path) -> dict[str, TensorEntry]:
    """Read the positions, shapes and dtypes of all tensors of a file, by name."""
    with path.open("rb") as handle:
        length = int.from_bytes(handle.read(8), "little")
        content = json.loads(handle.read(length))
    content.pop("__metadata__", None)
    kinds = {kind: dtype for dtype, kind in KINDS.items()}
    return {
        name: TensorEntry(
            path=path,
            shape=torch.Size(facts["shape"]),
            offset=8 + length + facts["data_offsets"][0],
            dtype=kinds.get(facts["dtype"], torch.uint8),
        )
        for name, facts in content.items()
    }


def allocate_file(path: Path, shapes: Shapes, dtype: torch.dtype = torch.float32) -> None:
    """Create a file with room for tensors of one dtype, which any number of processes fill with `write_run`."""
    head = build_header(shapes, dtype)
    with path.open("wb") as handle:
        handle.write(head)
        handle.truncate(len(head) + dtype.itemsize * sum(map(prod, shapes.values())))


def write_run(handle: IO[bytes], entry: TensorEntry, start: int, values: Tensor) -> None:
    """Write consecutive values of a tensor, from its element `start` on, to an allocated file."""
    handle.seek(entry.offset + entry.dtype.itemsize * start)
    # A copy: memory shared with numpy cannot be released (see parked.Parked).
    values.detach().to("cpu", entry.dtype, copy=True).reshape(-1).view(torch.uint8).numpy().tofile(handle)


def write_to_cache(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors of one dtype to the page cache alone: the commit hashes and flushes the file."""
    dtype = _dtype_of(tensors)
    allocate_file(path, {name: tensor.shape for name, tensor in tensors.items()}, dtype)
    entries = read_entries(path)
    with path.open("r+b") as handle:
        for name, tensor in tensors.items():
            write_run(handle, entries[name], 0, tensor)


def _dtype_of(tensors: Mapping[str, Tensor]) -> torch.dtype:
    (dtype,) = {tensor.dtype for tensor in tensors.values()} or {torch.float32}
    return dtype


def write_files(files: Mapping[Path, Mapping[str, Tensor]]) -> Iterator[tuple[Path, str]]:
    """Write files, flushed to the disk, and yield the sha256 of each in their order; large ones in parallel."""
    total = sum(tensor.nbytes for tensors in files.values() for tensor in tensors.values())
    if total < LARGE:
        yield from ((path, write_file(path, tensors)) for path, tensors in files.items())
        return
    with ThreadPoolExecutor(FILES) as pool:
        yield from zip(files, pool.map(write_file, files, files.values()), strict=True)


def write_file(path: Path, tensors: Mapping[str, Tensor]) -> str:
    """Write tensors of one dtype, flushed to the disk; returns the file's sha256, hex."""
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    return write_stream(path, shapes, _dtype_of(tensors), (tensors[name] for name in sorted(tensors)))


def write_stream(path: Path, shapes: Shapes, dtype: torch.dtype, values: Iterable[Tensor]) -> str:
    """Write tensors that arrive one by one in the order of their names, flushed; returns the file's sha256, hex."""
    head, digest, size = build_header(shapes, dtype), hashlib.sha256(), 0
    total = len(head) + dtype.itemsize * sum(map(prod, shapes.values()))
    large = total >= LARGE
    slots = SimpleQueue[Tensor]()
    # A write that bypasses the cache needs whole pages, which are too expensive to allocate for a small file.
    for _ in range(BLOCKS if large else 1):
        slots.put(
            torch.frombuffer(mmap.mmap(-1, BLOCK), dtype=torch.uint8)
            if large
            else torch.empty(total, dtype=torch.uint8)
        )
    with _open_for_writing(path, large=large) as file:
        with ThreadPoolExecutor(1) as disk:
            writes = []
            header = torch.frombuffer(bytearray(head), dtype=torch.uint8)
            pieces = (each.detach().contiguous().reshape(-1).view(torch.uint8) for each in values)
            for block, count in _fill_blocks(chain([header], pieces), slots):
                writes.append(disk.submit(_write_block, file, block, -(-count // PAGE) * PAGE, size, slots))
                digest.update(block.numpy().data[:count])
                size += count
            for write in writes:
                write.result()
        # The last block was written in whole pages.
        os.ftruncate(file, size)
        os.fsync(file)
    return digest.hexdigest()


@contextmanager
def _open_for_writing(path: Path, *, large: bool) -> Iterator[int]:
    with path.open("wb", buffering=0) as handle:
        file = handle.fileno()
        # Users who may read the folder may read the file: a store may have several readers.
        with suppress(PermissionError):
            os.fchmod(file, path.parent.stat().st_mode & 0o666)
        if large:
            # Not every file system supports writes that bypass the page cache.
            with suppress(OSError):
                fcntl(file, F_SETFL, _BYPASS_CACHE)
        yield file


def _fill_blocks(pieces: Iterable[Tensor], slots: SimpleQueue[Tensor]) -> Iterator[tuple[Tensor, int]]:
    """Copy bytes into blocks; yields each with its number of bytes. Only the last block may be partial."""
    block, filled = slots.get(), 0
    for piece in pieces:
        rest = piece
        while len(rest):
            count = min(len(rest), len(block) - filled)
            block[filled : filled + count].copy_(rest[:count])
            rest, filled = rest[count:], filled + count
            if filled == len(block):
                yield block, filled
                block, filled = slots.get(), 0
    if filled:
        yield block, filled


def _write_block(file: int, block: Tensor, count: int, place: int, slots: SimpleQueue[Tensor]) -> None:
    try:
        rest = block.numpy().data[:count]
        while rest:
            try:
                size = os.pwrite(file, rest, place)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                # The file system does not support such unbuffered writes: use the cache.
                fcntl(file, F_SETFL, 0)
                size = os.pwrite(file, rest, place)
            rest, place = rest[size:], place + size
    finally:
        slots.put(block)
