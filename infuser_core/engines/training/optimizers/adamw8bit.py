"""AdamW whose moments take 8 bits a number (T. Dettmers et al. 2021, arXiv 2110.02861, section 2).

Blocks of 256 numbers share a scale, and the codes between -1 and 1 are dense near 0; the library bitsandbytes converts.
Of the second moment the root is stored: it spans half as many decades, and Gamma of eq:adamw_moments divides by it.
Weights, gradients and the computation of a step are fp32.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any

import torch
from torch import Tensor

from infuser_core.algorithm.influence import Elementwise, direction, partial_sums
from infuser_core.config.optimizers import AdamW8bitOptions
from infuser_core.engines.training.flat import FlatParameters, chunk_on
from infuser_core.engines.training.optimizer import Optimizer, named_moments
from infuser_core.engines.training.optimizers.adamw import update

BLOCK = AdamW8bitOptions.block


class Moment:
    """A moment of one parameter: codes in the parameter's shape, and the scale of every block of its elements."""

    def __init__(self, parameter: Tensor, *, is_root: bool) -> None:
        self.codes, self.scales = zero_codes(parameter)
        self._dtype, self._is_root = parameter.dtype, is_root

    def read(self, span: slice) -> Tensor:
        """Return the elements of a span, flat and in the parameter's dtype; it starts at a block."""
        from bitsandbytes.functional import dequantize_blockwise

        blocks = slice(span.start // BLOCK, -(-span.stop // BLOCK))
        table = _table(self._is_root, self.codes.device)
        codes = self.codes.view(-1)[span].contiguous()
        values: Tensor = dequantize_blockwise(codes, absmax=self.scales[blocks], code=table, blocksize=BLOCK)
        return (values.square_() if self._is_root else values).to(self._dtype)

    def write(self, span: slice, values: Tensor) -> None:
        """Replace the elements of a span that starts at a block and ends at one or at the parameter's end."""
        from bitsandbytes.functional import quantize_blockwise

        stored = (values.sqrt() if self._is_root else values).float()
        codes, state = quantize_blockwise(stored, code=_table(self._is_root, values.device), blocksize=BLOCK)
        self.codes.view(-1)[span] = codes
        self.scales[span.start // BLOCK : -(-span.stop // BLOCK)] = state.absmax


def zero_codes(parameter: Tensor) -> tuple[Tensor, Tensor]:
    """Return codes and scales of a moment that is zero: every scale is."""
    blocks = -(-parameter.numel() // BLOCK)
    scales = torch.zeros(blocks, dtype=torch.float32, device=parameter.device)
    return torch.zeros_like(parameter, dtype=torch.uint8), scales


def named_tensors(name: str, codes: Tensor, scales: Tensor) -> list[tuple[str, Tensor]]:
    """Name the two tensors of a moment as in a checkpoint, where the scales are bytes: a file has one dtype."""
    return [(name, codes), (f"{name}.scales", scales.view(torch.uint8))]


@cache
def _table(is_root: bool, device: torch.device) -> Tensor:
    """The number of each of the 256 codes; a root has no sign."""
    from bitsandbytes.functional import create_dynamic_map

    table: Tensor = create_dynamic_map(signed=not is_root).to(device)
    return table


class AdamW8bit(Optimizer[AdamW8bitOptions]):
    """AdamW with 8-bit moments over flat parameters in one process."""

    def __init__(self, parameters: FlatParameters, options: AdamW8bitOptions) -> None:
        super().__init__(parameters, options)
        self._flat = parameters
        views = parameters.views(parameters.data)
        self._first = {name: Moment(view, is_root=False) for name, view in views.items()}
        self._second = {name: Moment(view, is_root=True) for name, view in views.items()}

    def _move(self, learning_rate: float, *, clip: float) -> None:
        flat = self._flat
        for name, span, data, gradient in self._pieces(flat.data, flat.gradient):
            if clip < 1.0:
                gradient.mul_(clip)
            moments = self._first[name], self._second[name]
            first, second = (moment.read(span) for moment in moments)
            update(data, gradient, first, second, options=self.options, rate=learning_rate, steps=self.steps)
            for moment, values in zip(moments, (first, second), strict=True):
                moment.write(span, values)

    @torch.no_grad()
    def below_epsilon(self) -> float:
        least = self.options.eps**2 * (1.0 - self.options.beta2**self.steps)
        pieces = (self._second[name].read(span) < least for name, span, _ in self._pieces(self._flat.data))
        counts = [(int(piece.sum()), piece.numel()) for piece in pieces]
        return sum(below for below, _ in counts) / sum(size for _, size in counts)

    @classmethod
    def first_moment(cls, name: str, weight: Tensor) -> dict[str, Tensor]:
        return dict(named_tensors(name, *zero_codes(weight)))

    def state(self) -> dict[str, Tensor]:
        moments = named_moments(self._first, self._second).items()
        return {key: each for name, moment in moments for key, each in named_tensors(name, moment.codes, moment.scales)}

    def sums(self, gradient: Tensor, reference: Tensor) -> Tensor:
        pieces = self._pieces(gradient, reference)
        directions = ((g, ref, direction(g, self._second[name].read(span), self.form)) for name, span, g, ref in pieces)
        return torch.stack([partial_sums(*each) for each in directions]).sum(0)

    @property
    def form(self) -> Elementwise:
        """Formula of Gamma at the current step (eq:adamw_moments)."""
        return Elementwise.of_adamw(step=self.steps, beta2=self.options.beta2, eps=self.options.eps)

    def _pieces(self, *buffers: Tensor) -> Iterator[tuple[Any, ...]]:
        """Iterate over pieces of every parameter: its name, the span of its elements, and this span of each buffer."""
        size = chunk_on(self._flat.data.device)
        views = [self._flat.views(buffer) for buffer in buffers]
        for name in self._first:
            flat = [each[name].view(-1) for each in views]
            for start in range(0, len(flat[0]), size):
                span = slice(start, min(len(flat[0]), start + size))
                yield (name, span, *(each[span] for each in flat))


OPTIMIZER = AdamW8bit
OPTIONS = AdamW8bitOptions
