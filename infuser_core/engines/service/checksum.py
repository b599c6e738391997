"""Checksum of a weight tensor, or of blocks of it that add up to the whole tensor's: to compare what an engine holds
with the checkpoint, wherever its parts lie.

A sum over elements of bits times numbers drawn from the element's row and column, modulo 2^64: blocks may be hashed
apart, in any order and on any device. It tells errors, not attacks. Only torch is needed: engines may run elsewhere.
"""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

_BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
_ODD = (-7046029254386353131, -4658895280553007687)
"""Odd 64-bit factors of splitmix64, as signed numbers."""
WIDTH = 1 << 64

Block = tuple[int, int, int]
"""First row and column of a block in its tensor, and its checksum."""


def matrix(tensor: Tensor) -> Tensor:
    """The tensor as rows: vectors are columns, and whatever follows the first dimension is flattened."""
    return tensor.reshape(tensor.shape[0], -1) if tensor.dim() else tensor.reshape(1, 1)


@torch.no_grad()
def checksum(block: Tensor, *, row: int = 0, column: int = 0) -> int:
    """Of a matrix that starts at `row` and `column` of its tensor. -0.0 counts as 0.0."""
    height, width = block.shape
    # On a CPU the numbers between should stay in its caches; an accelerator wants much work at a time.
    step = max(1, (1 << 16 if block.device.type == "cpu" else 1 << 24) // width)
    factors, total = _factors(column, width, block.device), 0
    for first in range(0, height, step):
        part = block[first : first + step]
        bits = (part + 0.0).contiguous().view(_BITS[part.element_size()]).long()
        sums = bits.mul_(factors).sum(1) + factors.sum() * _ODD[0]
        total += int((sums * _factors(-row - first - part.shape[0], part.shape[0], block.device).flip(0)).sum())
    return total % WIDTH


def _factors(first: int, count: int, device: torch.device) -> Tensor:
    """Odd numbers drawn from so many places: 64 bits, signed."""
    mixed = torch.arange(first, first + count, device=device) * _ODD[0]
    return ((mixed ^ (mixed >> 29)) * _ODD[1]) | 1


def of_tensors(tensors: Mapping[str, Tensor], dtype: str) -> dict[str, int]:
    """Checksum of each whole tensor in a dtype of that name."""
    return {name: checksum(matrix(tensor).to(getattr(torch, dtype))) for name, tensor in tensors.items()}


def of_run(run: Tensor, start: int, width: int) -> list[Block]:
    """Blocks of a run of elements of a tensor whose rows have `width`, from its element `start` on."""
    blocks, at = list[Block](), 0
    while at < len(run):
        row, column = divmod(start + at, width)
        left = len(run) - at
        count = left // width * width if column == 0 and left >= width else min(width - column, left)
        part = run[at : at + count].view(max(1, count // width), -1)
        blocks.append((row, column, checksum(part, row=row, column=column)))
        at += count
    return blocks


def whole(blocks: Iterable[Block]) -> int:
    """Checksum of the tensor that blocks make up. -1 where two that should be the same differ."""
    found: dict[tuple[int, int], int] = {}
    for row, column, one in blocks:
        if found.setdefault((row, column), one) != one:
            return -1
    return sum(found.values()) % WIDTH
