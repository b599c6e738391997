"""AdamW over one flat buffer of all parameters, operation by operation as torch.optim.AdamW does it.

Its state lies in the open: influence scores read the second moment, and checkpoints carry both moments. The buffers
are the storage; a model's parameters and their gradients are views of them.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Union

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

    def total(self, value: Tensor) -> Tensor:
        """A small fp64 tensor summed over everybody who holds a part of the parameters."""
        return value


class FlatParameters(FlatBuffers):
    """Named parameters as views of one buffer; padding between them stays 0 through every elementwise pass."""

    def __init__(self, parameters: Mapping[str, nn.Parameter]) -> None:
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
        """Every parameter's part of a buffer, in its own shape."""
        return {
            name: buffer[start : start + shape.numel()].view(shape) for name, (start, shape) in self._slices.items()
        }

    def bind(self, buffer: Tensor) -> None:
        """Let backward accumulate into `buffer` from now on."""
        for name, view in self.views(buffer).items():
            self._parameters[name].grad = view

    def unbind(self) -> None:
        """Leave the parameters without gradients, until `bind`."""
        for parameter in self._parameters.values():
            parameter.grad = None

    def bound(self) -> list[str]:
        """Parameters that have a gradient."""
        return [name for name, parameter in self._parameters.items() if parameter.grad is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdamWOptions:
    """Constants of the optimizer; the defaults are the paper's."""

    beta1: float = 0.9
    """Decay of the first moment."""
    beta2: float = 0.999
    """Decay of the second moment."""
    eps: float = 1e-8
    """Added to the root of the second moment."""
    weight_decay: float = 0.01
    """Decoupled weight decay, on every parameter."""
    max_grad_norm: float = 1.0
    """Global gradient norm above which the gradient is scaled down."""

    @classmethod
    def of(cls, given: Union["AdamWOptions", Mapping[str, float], None]) -> "AdamWOptions":
        """Options as an engine is given them: made, by name, or not at all."""
        return given if isinstance(given, AdamWOptions) else cls(**(given or {}))

    def to_json(self) -> dict[str, float]:
        """Plain values for `trainer.json`."""
        return asdict(self)


class AdamW:
    """Moments and step count of a set of flat parameters."""

    def __init__(self, parameters: FlatBuffers, options: AdamWOptions) -> None:
        self.options = options
        self.first = torch.zeros_like(parameters.data)
        self.second = torch.zeros_like(parameters.data)
        self.steps = 0
        self._parameters = parameters

    @torch.no_grad()
    def step(self, learning_rate: float) -> float:
        """Clip, then step; returns the gradient norm before clipping. A non-finite norm changes nothing."""
        flat, options = self._parameters, self.options
        norm = flat.norm(flat.gradient)
        if not math.isfinite(norm):
            return norm
        # The form of torch.nn.utils.clip_grad_norm_, its 1e-6 included.
        scale = min(1.0, options.max_grad_norm / (norm + 1e-6))
        self.steps += 1
        for data, gradient, first, second in flat.chunks(flat.data, flat.gradient, self.first, self.second):
            if scale < 1.0:
                gradient.mul_(scale)
            self._update(data, gradient, first, second, learning_rate)
        return norm

    def _update(self, data: Tensor, gradient: Tensor, first: Tensor, second: Tensor, learning_rate: float) -> None:
        options = self.options
        data.mul_(1.0 - learning_rate * options.weight_decay)
        first.lerp_(gradient, 1.0 - options.beta1)
        second.mul_(options.beta2).addcmul_(gradient, gradient, value=1.0 - options.beta2)
        correction = (1.0 - options.beta2**self.steps) ** 0.5
        denominator = (second.sqrt() / correction).add_(options.eps)
        data.addcdiv_(first, denominator, value=-learning_rate / (1.0 - options.beta1**self.steps))
