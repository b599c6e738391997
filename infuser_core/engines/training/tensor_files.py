"""safetensors files: their layout, room that processes fill in, and one pass that writes, hashes and flushes a file.

A large file goes past the page cache, where a copy costs more than the disk does, and its digest is that of the bytes
on their way: nothing is read again. The bytes are those of safetensors' own writer.
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
from math import prod
from pathlib import Path
from queue import SimpleQueue
from typing import IO

import torch
from torch import Tensor

BLOCK = 8 << 20
"""Bytes per write; a multiple of every disk's unit."""
PAGE = 4096
"""Unit of writes past the page cache, bytes: a file on its way needs no more room than this beyond its size."""
BLOCKS = 3
"""Blocks of a file in memory: one is filled and hashed while another one is written."""
LARGE = 64 << 20
"""Bytes from which a file goes past the page cache, and others are written beside it."""
FILES = min(16, os.cpu_count() or 1)
"""Large files that are written at the same time: hashing one keeps a core busy."""
KINDS = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}
_PAST_CACHE = getattr(os, "O_DIRECT", 0)

Shapes = Mapping[str, torch.Size]
"""Every tensor of a file, by its name."""


def header(shapes: Shapes, dtype: torch.dtype) -> bytes:
    """The first bytes of a file of tensors of one kind; their values follow in the order of their names."""
    content: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name in sorted(shapes):
        start, end = end, end + dtype.itemsize * prod(shapes[name])
        content[name] = {"dtype": KINDS[dtype], "shape": list(shapes[name]), "data_offsets": [start, end]}
    made = json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()
    # Values start at a multiple of 8 bytes; the format pads with spaces.
    made += b" " * (-len(made) % 8)
    return len(made).to_bytes(8, "little") + made


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Place of a tensor in a file."""

    path: Path
    """Its file."""
    shape: torch.Size
    """Its shape."""
    offset: int
    """Its first byte in the file."""
    dtype: torch.dtype
    """Its dtype."""


def read_entries(path: Path) -> dict[str, Entry]:
    """Places of all tensors of a file of a known dtype."""
    with path.open("rb") as handle:
        length = int.from_bytes(handle.read(8), "little")
        content = json.loads(handle.read(length))
    content.pop("__metadata__", None)
    kinds = {kind: dtype for dtype, kind in KINDS.items()}
    return {
        name: Entry(
            path=path,
            shape=torch.Size(facts["shape"]),
            offset=8 + length + facts["data_offsets"][0],
            dtype=kinds.get(facts["dtype"], torch.uint8),
        )
        for name, facts in content.items()
    }


def create(path: Path, shapes: Shapes, dtype: torch.dtype = torch.float32) -> None:
    """Create a file with room for tensors of one dtype, which any number of processes fill with `write_run`."""
    head = header(shapes, dtype)
    with path.open("wb") as handle:
        handle.write(head)
        handle.truncate(len(head) + dtype.itemsize * sum(map(prod, shapes.values())))


def write_run(handle: IO[bytes], entry: Entry, start: int, values: Tensor) -> None:
    """Write a run of a tensor that starts at its element `start`."""
    handle.seek(entry.offset + entry.dtype.itemsize * start)
    # A copy: memory that numpy has seen can never be given away (see deepspeed.zero.Parked).
    values.detach().to("cpu", entry.dtype, copy=True).reshape(-1).view(torch.uint8).numpy().tofile(handle)


def write_all(files: Mapping[Path, Mapping[str, Tensor]]) -> Iterator[tuple[Path, str]]:
    """Write files, flushed to the disk, and give the sha256 of each, in their order; large ones at the same time."""
    total = sum(tensor.nbytes for tensors in files.values() for tensor in tensors.values())
    if total < LARGE:
        yield from ((path, write(path, tensors)) for path, tensors in files.items())
        return
    with ThreadPoolExecutor(FILES) as pool:
        yield from zip(files, pool.map(write, files, files.values()), strict=True)


def write(path: Path, tensors: Mapping[str, Tensor]) -> str:
    """Write tensors of one kind, flushed to the disk; returns the file's sha256, hex."""
    (dtype,) = {tensor.dtype for tensor in tensors.values()} or {torch.float32}
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    return write_as_they_come(path, shapes, dtype, (tensors[name] for name in sorted(tensors)))


def write_as_they_come(path: Path, shapes: Shapes, dtype: torch.dtype, values: Iterable[Tensor]) -> str:
    """Write tensors that arrive one after the other, in the order of their names; flushed, and hashed as in `write`."""
    head, found, size = header(shapes, dtype), hashlib.sha256(), 0
    total = len(head) + dtype.itemsize * sum(map(prod, shapes.values()))
    large = total >= LARGE
    slots = SimpleQueue[Tensor]()
    # A write past the cache needs whole pages; fresh ones cost more than the copy, so that a small file does without.
    for _ in range(BLOCKS if large else 1):
        slots.put(
            torch.frombuffer(mmap.mmap(-1, BLOCK), dtype=torch.uint8)
            if large
            else torch.empty(total, dtype=torch.uint8)
        )
    with _created(path, large=large) as file:
        with ThreadPoolExecutor(1) as disk:
            begun = []
            for block, count in _blocks(_bytes(head, values), slots):
                begun.append(disk.submit(_put, file, block, -(-count // PAGE) * PAGE, size, slots))
                found.update(block.numpy().data[:count])
                size += count
            for each in begun:
                each.result()
        # Of the last block whole pages went there.
        os.ftruncate(file, size)
        os.fsync(file)
    return found.hexdigest()


@contextmanager
def _created(path: Path, *, large: bool) -> Iterator[int]:
    with path.open("wb", buffering=0) as handle:
        file = handle.fileno()
        # Who may read the folder may read the file: a store may have several readers.
        with suppress(PermissionError):
            os.fchmod(file, path.parent.stat().st_mode & 0o666)
        if large:
            # Not every file system can.
            with suppress(OSError):
                fcntl(file, F_SETFL, _PAST_CACHE)
        yield file


def _bytes(head: bytes, values: Iterable[Tensor]) -> Iterator[Tensor]:
    """The file's bytes: the header, and one tensor after the other wherever it lies."""
    yield torch.frombuffer(bytearray(head), dtype=torch.uint8)
    for each in values:
        yield each.detach().contiguous().reshape(-1).view(torch.uint8)


def _blocks(pieces: Iterable[Tensor], slots: SimpleQueue[Tensor]) -> Iterator[tuple[Tensor, int]]:
    """Bytes in blocks, with the number of those that count: all, but for the last one."""
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


def _put(file: int, block: Tensor, count: int, place: int, slots: SimpleQueue[Tensor]) -> None:
    try:
        rest = block.numpy().data[:count]
        while rest:
            try:
                done = os.pwrite(file, rest, place)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                # A file system that wants writes past the cache otherwise.
                fcntl(file, F_SETFL, 0)
                done = os.pwrite(file, rest, place)
            rest, place = rest[done:], place + done
    finally:
        slots.put(block)
