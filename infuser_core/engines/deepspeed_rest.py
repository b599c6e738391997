"""Memory of buffers given to others and taken back: what lies on them stays valid, views and aliases included."""

from collections.abc import Iterable

import torch
from torch import Tensor


class Parked:
    """Buffers without storage until `restore`: the `kept` ones have copies on the host, the rest is lost."""

    def __init__(self, kept: Iterable[Tensor], lost: Iterable[Tensor]) -> None:
        self._copies = [(each, each.detach().to("cpu", copy=True)) for each in kept]
        self._storages = emptied([*(each for each, _ in self._copies), *lost])

    def restore(self) -> None:
        """Take the memory back: copies where they were, zeros elsewhere."""
        for storage, size in self._storages:
            storage.resize_(size)
            torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage).zero_()
        for each, copy in self._copies:
            each.detach().copy_(copy)
        self._copies, self._storages = [], []


def emptied(buffers: Iterable[Tensor]) -> list[tuple[torch.UntypedStorage, int]]:
    """Free what lies under the buffers, once each; the storages and their sizes in bytes."""
    found: list[tuple[torch.UntypedStorage, int]] = []
    for each in buffers:
        storage = each.untyped_storage()
        # Pinned host memory keeps its size.
        if storage.nbytes() and storage.resizable():
            found.append((storage, storage.nbytes()))
            storage.resize_(0)
    return found
