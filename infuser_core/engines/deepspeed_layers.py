"""Sharded buffers seen one parameter at a time: gathered when a backward pass reaches it, dropped when it moves on.

Every rank reaches the same parameters in the same order, so that the collectives meet.
"""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from infuser_core.engines.deepspeed_shard import Shard

KEPT = 2
"""Parameters held at a time: a weight and its bias take turns while one layer's gradient is formed."""


class Gathered(Mapping[str, Tensor]):
    """Whole parameters of a sharded buffer, made when asked for."""

    def __init__(self, shard: Shard, buffer: Tensor) -> None:
        self._shard = shard
        self._buffer = buffer
        self._held: dict[str, Tensor] = {}

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._held:
            while len(self._held) >= KEPT:
                del self._held[next(iter(self._held))]
            self._held[name] = self._shard.whole(name, self._buffer)
        return self._held[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._shard.shapes)

    def __len__(self) -> int:
        return len(self._shard.shapes)


class Scattered(Mapping[str, Tensor]):
    """Whole parameters to add to: what was added goes to its owners when the pass moves on, or at `flush`."""

    def __init__(self, shard: Shard, buffer: Tensor) -> None:
        self._shard = shard
        self._buffer = buffer
        self._held: dict[str, Tensor] = {}

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._held:
            while len(self._held) >= KEPT:
                self._release()
            shape = self._shard.shapes[name]
            self._held[name] = torch.zeros(shape, dtype=self._buffer.dtype, device=self._shard.device)
        return self._held[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._shard.shapes)

    def __len__(self) -> int:
        return len(self._shard.shapes)

    def flush(self) -> None:
        """Send everything that is held to its owners."""
        while self._held:
            self._release()

    def _release(self) -> None:
        name = next(iter(self._held))
        self._shard.add_whole(name, self._held.pop(name), self._buffer)
