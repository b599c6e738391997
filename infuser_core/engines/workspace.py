"""Three buffers that every piece of a per-question gradient passes through: memory for pieces, never for models."""

import math

import torch
from torch import Tensor

CPU_PIECE = 1 << 17
"""Elements of a piece on a CPU: 512 KiB in fp32. Smaller ones cost more in calls than they save in cache misses."""

DEVICE_PIECE = 1 << 26
"""Elements of a piece on an accelerator: 256 MiB in fp32."""


class Workspace:
    """A piece, its scratch and its moment, each of `elements` elements or of one weight row where that is longer."""

    def __init__(self, *, dtype: torch.dtype, device: torch.device, elements: int | None = None) -> None:
        self.elements = elements or (CPU_PIECE if device.type == "cpu" else DEVICE_PIECE)
        self.dtype = dtype
        self.device = device
        self._buffers = [torch.empty(0, dtype=dtype, device=device) for _ in range(3)]

    def tile(self, rows: int, columns: int) -> tuple[int, int]:
        """Weight rows of a piece, and questions that fit into it with all of these rows."""
        height = max(1, min(rows, self.elements // columns))
        return height, max(1, self.elements // (height * columns))

    def piece(self, *shape: int) -> Tensor:
        """Room for a piece, uninitialised; the previous piece is lost."""
        return self._room(0, shape)

    def scratch(self, *shape: int) -> Tensor:
        """Room for what is computed from a piece, uninitialised."""
        return self._room(1, shape)

    def moment(self, *shape: int) -> Tensor:
        """Room for the second moment that belongs to a piece, uninitialised."""
        return self._room(2, shape)

    def _room(self, which: int, shape: tuple[int, ...]) -> Tensor:
        wanted = math.prod(shape)
        if self._buffers[which].numel() < wanted:
            size = max(wanted, self.elements)
            self._buffers[which] = torch.empty(size, dtype=self.dtype, device=self.device)
        return self._buffers[which][:wanted].view(shape)


def product(left: Tensor, right: Tensor, dtype: torch.dtype, *, out: Tensor | None = None) -> Tensor:
    """left @ right with the result in `dtype`, whatever the operands' own: bf16 operands, fp32 sums and result."""
    if left.dtype == dtype:
        return torch.mm(left, right, out=out)
    if left.device.type == "cpu":
        return torch.mm(left.to(dtype), right.to(dtype), out=out)
    if out is None:
        return torch.mm(left, right, out_dtype=dtype)
    return torch.mm(left, right, out_dtype=dtype, out=out)
