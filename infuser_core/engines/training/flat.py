"""A model's trained parameters in one flat tensor, and their gradients in another, with views by name."""

from collections.abc import Collection, Iterator, Mapping

import torch
from torch import Tensor, nn

ALIGNMENT = 16
"""Every parameter starts at a multiple of this many elements: 64 bytes in fp32, one cache line."""

CPU_CHUNK = 1 << 17
"""Elements handled at a time on a CPU: half a MiB in fp32, so that a few temporaries stay in the cache."""

DEVICE_CHUNK = 1 << 26
"""Elements handled at a time on an accelerator: temporaries of 256 MiB in fp32."""


class FlatBuffers:
    """`data` holds the master weights, `gradient` the accumulated gradient of -J, both flat."""

    def __init__(self, data: Tensor) -> None:
        self.data = data
        self.gradient = torch.zeros_like(data)

    def chunks(self, *buffers: Tensor) -> Iterator[tuple[Tensor, ...]]:
        """The same pieces of several buffers, one piece after the other."""
        size = CPU_CHUNK if self.data.device.type == "cpu" else DEVICE_CHUNK
        return zip(*(buffer.split(size) for buffer in buffers), strict=True)

    def norm(self, buffer: Tensor) -> float:
        """Euclidean norm of a buffer, accumulated in fp64."""
        squares = [(part * part).sum(dtype=torch.float64) for (part,) in self.chunks(buffer)]
        return float(self.total(torch.stack(squares).sum()).sqrt())

    def views(self, buffer: Tensor) -> dict[str, Tensor]:
        """The part of every parameter in a buffer of this process."""
        raise NotImplementedError

    def total(self, value: Tensor) -> Tensor:
        """A small fp64 tensor summed over all processes that hold a part of the parameters."""
        return value


class FlatParameters(FlatBuffers):
    """Parameters as views of one buffer, whose padding stays 0; `outer` names the embedding and the output layer."""

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
        self._parameters = dict(parameters)
        for name, view in self.views(self.data).items():
            view.copy_(parameters[name].data)
            parameters[name].data = view
        self.bind(self.gradient)

    def views(self, buffer: Tensor) -> dict[str, Tensor]:
        """Every parameter's part of a buffer, in the parameter's shape."""
        return {
            name: buffer[start : start + shape.numel()].view(shape) for name, (start, shape) in self._slices.items()
        }

    def bind(self, buffer: Tensor) -> None:
        """Let backward accumulate into `buffer` from now on."""
        for name, view in self.views(buffer).items():
            self._parameters[name].grad = view

    def unbind(self) -> None:
        """Remove the parameters' gradients until `bind`."""
        for parameter in self._parameters.values():
            parameter.grad = None

    def bound_names(self) -> list[str]:
        """Names of the parameters that have a gradient."""
        return [name for name, parameter in self._parameters.items() if parameter.grad is not None]


def hidden_matrices(parameters: Mapping[str, Tensor], outer: Collection[str]) -> frozenset[str]:
    """Names of the matrices that are not in `outer`."""
    return frozenset(name for name, each in parameters.items() if each.dim() == 2 and name not in outer)
