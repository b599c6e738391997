"""A safetensors file with room for every tensor, which any number of processes fill in run by run."""

import json
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import IO

import torch
from torch import Tensor

from infuser_core.engines.training.tensor_files import KINDS, Shapes, header


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


def create(path: Path, shapes: Shapes, dtype: torch.dtype = torch.float32) -> None:
    """A file of tensors of one dtype with room for their values."""
    head = header(shapes, dtype)
    with path.open("wb") as handle:
        handle.write(head)
        handle.truncate(len(head) + dtype.itemsize * sum(map(prod, shapes.values())))


def entries(path: Path) -> dict[str, Entry]:
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


def put(handle: IO[bytes], entry: Entry, start: int, values: Tensor) -> None:
    """Write a run of a tensor that starts at its element `start`."""
    handle.seek(entry.offset + entry.dtype.itemsize * start)
    # A copy: memory that numpy has seen can never be given away (see deepspeed.zero.Parked).
    values.detach().to("cpu", entry.dtype, copy=True).reshape(-1).view(torch.uint8).numpy().tofile(handle)
