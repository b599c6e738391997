"""Move training state to host memory, so that another engine or role can use the device, and back: no bit changes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkedState:
    """A role's training state, or one rank's shard of it, copied to host memory."""

    tensors: list[Tensor]
    """Masters and moments (see `copy_to_host`)."""
    steps: int
    """Optimizer steps since the anchor."""
    source: Path
    """Folder of the checkpoint from which it was loaded."""


class Parked:
    """Buffers whose memory is freed until `restore`; those of `state` are copied to the host, `scratch` is dropped.

    `pinned`: see `copy_to_host`.
    """

    def __init__(self, state: Iterable[Tensor], scratch: Iterable[Tensor], *, pinned: bool = False) -> None:
        self._buffers = list(state)
        self.copies = copy_to_host(self._buffers, pinned=pinned)
        """Contents of the buffers, in their order."""
        self._storages = free_storages([*self._buffers, *scratch])

    def restore(self, first: Sequence[Tensor] = ()) -> None:
        """Allocate the buffers' memory again, and fill it with the copies, or with zeros.

        `first` replaces the copies of as many buffers.
        """
        for storage, size in self._storages:
            storage.resize_(size)
            torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage).zero_()
        copies = [*first, *self.copies[len(first) :]]
        for buffer, copy in zip(self._buffers, copies, strict=True):
            buffer.detach().copy_(copy)
        self._buffers, self.copies, self._storages = [], [], []


def copy_to_host(tensors: Iterable[Tensor], *, pinned: bool = True) -> list[Tensor]:
    """Copy tensors to host memory, with `pinned` to memory that an accelerator copies several times faster."""
    return [
        torch.empty_like(each, device="cpu", pin_memory=pinned and each.device.type == "cuda").copy_(each.detach())
        for each in tensors
    ]


def host_bytes(tensors: Iterable[Tensor]) -> int:
    """Count the bytes of host memory that pinned copies take: torch allocates such memory in powers of two."""
    return sum(
        1 << (tensor.nbytes - 1).bit_length() if tensor.nbytes and tensor.device.type == "cuda" else tensor.nbytes
        for tensor in tensors
    )


def free_storages(buffers: Iterable[Tensor]) -> list[tuple[torch.UntypedStorage, int]]:
    """Free the storages of buffers, once each; returns the storages and their former sizes in bytes."""
    storages: list[tuple[torch.UntypedStorage, int]] = []
    for buffer in buffers:
        storage = buffer.untyped_storage()
        # Pinned and mapped host memory keeps its size.
        if storage.nbytes() and storage.resizable():
            storages.append((storage, storage.nbytes()))
            storage.resize_(0)
    return storages
