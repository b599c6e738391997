"""One rank's part (shard) of all parameters as one fp32 buffer, and whole parameters gathered from all ranks.

Shard buffers are flat tensors of one layout: masters, both moments, gradients, a reference direction. A fragment is the
contiguous run of a parameter that a rank owns; every element of every parameter has one owner.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from infuser_core.engines.training.flat import FlatBuffers, chunk_on


@dataclass(frozen=True, slots=True, kw_only=True)
class Fragment:
    """The contiguous part of one parameter that a rank owns, and its position in the rank's buffers."""

    name: str
    """Name of the parameter."""
    offset: int
    """First element in the rank's buffers."""
    start: int
    """First element in the flattened parameter."""
    length: int
    """Elements."""


class Shard(FlatBuffers):
    """One rank's shard as FlatBuffers, which AdamW updates; norms are those of all ranks' shards together."""

    def __init__(
        self, data: Tensor, fragments: Sequence[Fragment], *, shapes: Mapping[str, torch.Size], device: torch.device
    ) -> None:
        super().__init__(data)
        self.fragments = list(fragments)
        self.shapes = dict(shapes)
        self.device = device
        self._by_name = {fragment.name: fragment for fragment in self.fragments}
        everyone: list[list[Fragment] | None] = [None] * dist.get_world_size()
        dist.all_gather_object(everyone, self.fragments)
        self._owners: dict[str, list[tuple[int, Fragment]]] = {name: [] for name in shapes}
        for rank, theirs in enumerate(everyone):
            for fragment in theirs or []:
                self._owners[fragment.name].append((rank, fragment))

    def views(self, buffer: Tensor) -> dict[str, Tensor]:
        """Return this rank's fragments of a buffer, flat, by parameter."""
        return {each.name: buffer[each.offset : each.offset + each.length] for each in self.fragments}

    def mine(self, name: str, buffer: Tensor) -> tuple[Fragment, Tensor] | None:
        """Return this rank's fragment of a parameter and its values in a buffer, flat; None if it owns none."""
        fragment = self._by_name.get(name)
        if fragment is None:
            return None
        return fragment, buffer[fragment.offset : fragment.offset + fragment.length]

    def own(self, buffer: Tensor) -> Iterator[tuple[Fragment, Tensor]]:
        """Return this rank's fragments of all parameters with their values in a buffer, flat."""
        return zip(self.fragments, self.views(buffer).values(), strict=True)

    def total(self, value: Tensor) -> Tensor:
        """Sum a small fp64 tensor over ranks, on the compute device. All ranks call it."""
        result = value.to(self.device)
        dist.all_reduce(result)
        return result

    def whole(self, name: str, buffer: Tensor) -> Tensor:
        """Gather a parameter's values in a buffer, in its shape, on the compute device. All ranks call it."""
        shape, owners = self.shapes[name], self._owners[name]
        mine = self._by_name.get(name)
        step = owners[0][1].length
        if mine is not None and _is_even(owners, step):
            own = torch.zeros(step, dtype=buffer.dtype, device=self.device)
            own[: mine.length] = buffer[mine.offset : mine.offset + mine.length]
            values = torch.empty(step * len(owners), dtype=buffer.dtype, device=self.device)
            dist.all_gather_into_tensor(values, own)
            return values[: shape.numel()].view(shape)
        values = torch.empty(shape.numel(), dtype=buffer.dtype, device=self.device)
        if mine is not None:
            values[mine.start : mine.start + mine.length] = buffer[mine.offset : mine.offset + mine.length]
        for rank, fragment in owners:
            dist.broadcast(values[fragment.start : fragment.start + fragment.length], src=rank)
        return values.view(shape)

    def gathered(self, name: str, *buffers: Tensor) -> Iterator[tuple[slice, list[Tensor]]]:
        """Gather a parameter's values in several buffers, flat: at once, or owner by owner if it is large.

        All ranks must exhaust the iterator.
        """
        size = self.shapes[name].numel()
        if size <= chunk_on(self.device):
            yield slice(0, size), [self.whole(name, buffer).reshape(-1) for buffer in buffers]
            return
        for rank, fragment in self._owners[name]:
            run = slice(fragment.start, fragment.start + fragment.length)
            own = slice(fragment.offset, fragment.offset + fragment.length)
            values = [torch.empty(fragment.length, dtype=each.dtype, device=self.device) for each in buffers]
            for value, buffer in zip(values, buffers, strict=True):
                if rank == dist.get_rank():
                    value.copy_(buffer[own])
                dist.broadcast(value, src=rank)
            yield run, values

    def parts(self, buffer: Tensor, place: int, count: int) -> Iterator[tuple[Fragment, Tensor]]:
        """Yield part number `place` of `count` equal parts of every parameter in a buffer, gathered from its owners.

        All ranks must exhaust the iterator.
        """
        for name in self.shapes:
            flat = self.whole(name, buffer).reshape(-1)
            step = -(-len(flat) // count)
            run = flat[place * step : (place + 1) * step]
            yield Fragment(name=name, offset=0, start=min(place * step, len(flat)), length=len(run)), run


def _is_even(owners: Sequence[tuple[int, Fragment]], step: int) -> bool:
    """Whether every rank owns one fragment of a parameter, in rank order, all of length `step` except at the end."""
    ends = [each.start + each.length for _, each in owners]
    starts = [each.start for _, each in owners]
    if len(owners) != dist.get_world_size() or starts != [0, *ends[:-1]]:
        return False
    return all(min((rank + 1) * step, ends[-1]) == end for rank, end in enumerate(ends))
