"""A rank that holds its part of a few parameters, and writes files of them with the others."""

from pathlib import Path

import torch

from infuser_core.engines.cluster.ranks import Seat
from infuser_core.engines.deepspeed import files
from infuser_core.engines.deepspeed.rank import join_group
from infuser_core.engines.deepspeed.shard import Fragment, Shard

SIZES = {"d": (7, 3), "a": (5,), "c": (2, 2, 2), "b": (64, 9)}
"""Parameters of which the first rank has the smaller part, and all of `a`."""


def tensors(scale: float) -> dict[str, torch.Tensor]:
    """Whole parameters."""
    return {name: scale * torch.arange(torch.Size(shape).numel()).reshape(shape) for name, shape in SIZES.items()}


class FileRank:
    """Two of them."""

    progress = (0, 0)

    def __init__(self, seat: Seat, options: object) -> None:
        join_group(seat, "cpu")
        self._rank, fragments, offset = seat.rank, list[Fragment](), 0
        for name, shape in SIZES.items():
            size = torch.Size(shape).numel()
            cut = size if name == "a" else size // 3
            start, length = ((0, cut), (cut, size - cut))[seat.rank]
            if length:
                fragments.append(Fragment(name=name, offset=offset, start=start, length=length))
                offset += length
        shapes = {name: torch.Size(shape) for name, shape in SIZES.items()}
        self._shard = Shard(torch.zeros(offset), fragments, shapes=shapes, device=torch.device("cpu"))

    def write(self, folder: str, at_once: bool, cap: int) -> dict[str, str]:
        """Weights, and moments of three times as much."""
        held = {scale: {name: (name, self._buffer(scale)) for name in SIZES} for scale in (1.0, 3.0)}
        moments = {f"m.{name}": each for name, each in held[3.0].items()}
        contents = {Path(folder, "model.safetensors"): held[1.0], Path(folder, "optimizer.safetensors"): moments}
        return files.write(contents, self._shard, at_once=at_once, cap=cap)

    def _buffer(self, scale: float) -> torch.Tensor:
        whole = tensors(scale)
        return torch.cat([
            whole[each.name].flatten()[each.start : each.start + each.length] for each in self._shard.fragments
        ])  # fmt: skip
