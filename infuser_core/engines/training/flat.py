"""Store a model's trained parameters in one flat tensor and their gradients in another, with views by name."""

from collections.abc import Collection, Iterator, Mapping

import torch
from torch import Tensor, nn

from infuser_core.memory.sizes import CHUNK, CPU_CHUNK

ALIGNMENT = 16
"""Every parameter starts at a multiple of this many elements: 64 bytes in fp32, one cache line."""


def chunk_on(device: torch.device) -> int:
    """Return the elements of a parameter to handle at a time on a device."""
    return CPU_CHUNK if device.type == "cpu" else CHUNK


class FlatBuffers:
    """Master weights (`data`) and accumulated gradient of -J (`gradient`) as flat tensors of one layout."""

    def __init__(self, data: Tensor) -> None:
        self.data = data
        self.gradient = torch.zeros_like(data)

    def chunks(self, *buffers: Tensor) -> Iterator[tuple[Tensor, ...]]:
        """Split several buffers into pieces of the same ranges, and iterate over them."""
        size = chunk_on(buffers[0].device)
        return zip(*(buffer.split(size) for buffer in buffers), strict=True)

    def norm(self, buffer: Tensor) -> float:
        """Compute the Euclidean norm of a buffer over all processes, accumulated in fp64."""
        squares = [(part * part).sum(dtype=torch.float64) for (part,) in self.chunks(buffer)]
        return float(self.total(torch.stack(squares).sum()).sqrt())

    def views(self, buffer: Tensor) -> dict[str, Tensor]:
        """Return views of every parameter's part in a buffer of this process, by name."""
        raise NotImplementedError

    def total(self, value: Tensor) -> Tensor:
        """Sum a small fp64 tensor over all processes that hold a part of the parameters."""
        return value


class FlatParameters(FlatBuffers):
    """Makes parameters views of one buffer, whose padding stays 0; `outer` names embedding and output layer."""

    def __init__(self, parameters: Mapping[str, nn.Parameter], *, outer: Collection[str] = ()) -> None:
        self.hidden = hidden_matrices(parameters, outer)
        """Names of the matrices between embedding and output layer."""
        self._slices: dict[str, tuple[int, torch.Size]] = {}
        total = 0
        for name, parameter in parameters.items():
            self._slices[name] = (total, parameter.shape)
            total += -(-parameter.numel() // ALIGNMENT) * ALIGNMENT
        first = next(iter(parameters.values()))
        super().__init__(torch.zeros(total, dtype=first.dtype, device=first.device))
        for name, view in self.views(self.data).items():
            view.copy_(parameters[name].data)
            parameters[name].data = view
        for name, view in self.views(self.gradient).items():
            parameters[name].grad = view

    def views(self, buffer: Tensor) -> dict[str, Tensor]:
        """Return views of every parameter's part of a buffer, in the parameter's shape, by name."""
        return {
            name: buffer[start : start + shape.numel()].view(shape) for name, (start, shape) in self._slices.items()
        }


def hidden_matrices(parameters: Mapping[str, Tensor], outer: Collection[str]) -> frozenset[str]:
    """Return the names of all matrices except those in `outer`, the embedding and the output layer."""
    return frozenset(name for name, each in parameters.items() if each.dim() == 2 and name not in outer)
