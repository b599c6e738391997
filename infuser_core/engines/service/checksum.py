"""Checksums of weight tensors, to compare the weights of a sampling engine, even spread over ranks, with a checkpoint.

A checksum is the sum over elements of their bits times numbers computed from the element's row and column, modulo 2^64.
Checksums of a tensor's blocks thus add up to its own, in any order and on any device. They detect errors, not attacks.
Only torch is needed: engines may run in another environment.
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
    """View a tensor as a matrix: a vector becomes a column, and dimensions after the first are flattened."""
    return tensor.reshape(tensor.shape[0], -1) if tensor.dim() else tensor.reshape(1, 1)


@torch.no_grad()
def checksum(block: Tensor, *, row: int = 0, column: int = 0) -> int:
    """Compute the checksum of a block (matrix) at `row` and `column` of its tensor. -0.0 counts as 0.0."""
    height, width = block.shape
    # On a CPU intermediate values should fit its caches; an accelerator needs large steps.
    step = max(1, (1 << 16 if block.device.type == "cpu" else 1 << 24) // width)
    factors, total = _factors(column, width, block.device), 0
    for first in range(0, height, step):
        part = block[first : first + step]
        bits = (part + 0.0).contiguous().view(_BITS[part.element_size()]).long()
        sums = bits.mul_(factors).sum(1) + factors.sum() * _ODD[0]
        total += int((sums * _factors(-row - first - part.shape[0], part.shape[0], block.device).flip(0)).sum())
    return total % WIDTH


def _factors(first: int, count: int, device: torch.device) -> Tensor:
    """Compute odd 64-bit hash factors for `count` consecutive indices, signed."""
    mixed = torch.arange(first, first + count, device=device) * _ODD[0]
    return ((mixed ^ (mixed >> 29)) * _ODD[1]) | 1


def of_tensors(tensors: Mapping[str, Tensor], dtype: str) -> dict[str, int]:
    """Compute the checksum of each tensor, rounded to `dtype`."""
    return {name: checksum(matrix(tensor).to(getattr(torch, dtype))) for name, tensor in tensors.items()}


def of_adapter(tensors: Mapping[str, Tensor], dtype: str, *, scale: float) -> dict[str, int]:
    """Compute the checksum of each tensor of an adapter as vLLM holds it: B is multiplied by `scale`, alpha / r (LoRA).

    Both the tensor and its product are rounded to `dtype`. Names are those of peft's file.
    """
    rounded = {name: tensor.to(getattr(torch, dtype)) for name, tensor in tensors.items()}
    return of_tensors({name: each * scale if ".lora_B." in name else each for name, each in rounded.items()}, dtype)


def of_run(run: Tensor, start: int, width: int) -> list[Block]:
    """Compute checksums for a run of elements, from element `start` on, of a tensor with rows of `width` elements."""
    blocks, first = list[Block](), 0
    while first < len(run):
        row, column = divmod(start + first, width)
        rest = len(run) - first
        count = rest // width * width if column == 0 and rest >= width else min(width - column, rest)
        part = run[first : first + count].view(max(1, count // width), -1)
        blocks.append((row, column, checksum(part, row=row, column=column)))
        first += count
    return blocks


def whole(blocks: Iterable[Block]) -> int:
    """Add up the checksum of a tensor from those of its blocks; -1 if two copies of a block differ."""
    sums: dict[tuple[int, int], int] = {}
    for row, column, block in blocks:
        if sums.setdefault((row, column), block) != block:
            return -1
    return sum(sums.values()) % WIDTH
