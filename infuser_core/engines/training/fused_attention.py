"""Attention over packed segments by fused kernels: variable-length flash attention and flex attention.

Queries are the flat tokens as they stand. Every prompt is a sequence of its own; every response is one whose keys are
its prompt's and then its own, aligned at the end. Shapes: _T flat tokens, _K gathered keys, heads, D head size.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from infuser_core.engines.training.attention import SegmentShape

Kernel = Callable[..., Tensor]
"""`kernel(query, key, value, starts_q, starts_k, longest_q, longest_k, scaling=, window=)` of [T, heads, D] tensors:
sequence i is `starts[i]:starts[i + 1]`; its last query sees its last key, and nobody looks ahead."""


class VarlenLayout:
    """Layout of a packed sequence [1, T] for a kernel of that form."""

    def __init__(self, shapes: Sequence[SegmentShape], *, device: torch.device, kernel: Kernel) -> None:
        self.longest = max(shape.prompt + max(shape.rows) for shape in shapes)
        sequences = list(_sequences(shapes))
        queries, keys = [len(own) for own, _ in sequences], [len(seen) for _, seen in sequences]
        self._kernel = kernel
        self._seen = torch.from_numpy(np.concatenate([seen for _, seen in sequences])).to(device)
        self._starts_q, self._starts_k = (_starts(lengths, device) for lengths in (queries, keys))
        self._longest_q, self._longest_k = max(queries), max(keys)

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, *, scaling: float, window: int | None = None
    ) -> Tensor:
        """Attention output [1, T, heads, D], in the dtype that the kernel computes in."""
        flat = [in_compute_dtype(each)[0].transpose(0, 1) for each in (query, key, value)]
        output = self._kernel(
            flat[0].contiguous(),
            flat[1].index_select(0, self._seen),
            flat[2].index_select(0, self._seen),
            self._starts_q,
            self._starts_k,
            self._longest_q,
            self._longest_k,
            scaling=scaling,
            window=window,
        )
        return output[None]


def in_compute_dtype(states: Tensor) -> Tensor:
    """What autocast would make of an operand: some norms hand on fp32, and the kernels take one dtype."""
    kind = states.device.type
    return states.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else states


def _sequences(shapes: Sequence[SegmentShape]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Flat places of the queries and of the keys of every sequence."""
    flat = 0
    for shape in shapes:
        prompt = np.arange(flat, flat + shape.prompt)
        yield prompt, prompt
        flat += shape.prompt
        for length in shape.rows:
            own = np.arange(flat, flat + length)
            yield own, np.concatenate([prompt, own])
            flat += length


def _starts(lengths: Sequence[int], device: torch.device) -> Tensor:
    return torch.tensor([0, *np.cumsum(lengths).tolist()], dtype=torch.int32, device=device)


def plain_kernel(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    starts_q: Tensor,
    starts_k: Tensor,
    longest_q: int,
    longest_k: int,
    *,
    scaling: float,
    window: int | None,
) -> Tensor:
    """The same contract written down sequence by sequence: what a kernel is checked by, on any device."""
    repeats = query.shape[1] // key.shape[1]
    outputs = []
    bounds = [zip(each[:-1].tolist(), each[1:].tolist(), strict=True) for each in (starts_q, starts_k)]
    for (q0, q1), (k0, k1) in zip(*bounds, strict=True):
        keys, values = (each[k0:k1].repeat_interleave(repeats, 1).transpose(0, 1) for each in (key, value))
        scores = (query[q0:q1].transpose(0, 1) @ keys.transpose(1, 2)) * scaling
        ages = torch.arange(k1 - k0 - (q1 - q0), k1 - k0, device=query.device)[:, None] - torch.arange(
            k1 - k0, device=query.device
        )
        hidden = (ages < 0) | (ages >= (window or longest_k))
        outputs.append((scores.masked_fill(hidden, float("-inf")).softmax(-1) @ values).transpose(0, 1))
    return torch.cat(outputs)


PROMPT = -1
"""Row number of a prompt's tokens."""


class FlexLayout:
    """Layout of a packed sequence [1, T]: a token sees its segment's prompt and its own row, up to itself."""

    def __init__(self, shapes: Sequence[SegmentShape], *, device: torch.device) -> None:
        self.longest = max(shape.prompt + max(shape.rows) for shape in shapes)
        segments: list[int] = []
        rows: list[int] = []
        positions: list[int] = []
        for number, shape in enumerate(shapes):
            for row, length in enumerate([shape.prompt, *shape.rows], PROMPT):
                segments += [number] * length
                rows += [row] * length
                start = 0 if row == PROMPT else shape.prompt
                positions += range(start, start + length)
        self._device = device
        self._segments, self._rows, self._positions = (
            torch.tensor(each, device=device) for each in (segments, rows, positions)
        )
        self._masks: dict[int | None, BlockMask] = {}

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, *, scaling: float, window: int | None = None
    ) -> Tensor:
        """Attention output [1, T, heads, D]."""
        if window not in self._masks:
            self._masks[window] = self._mask(window)
        operands = [in_compute_dtype(each) for each in (query, key, value)]
        grouped = query.shape[1] != key.shape[1]
        call = _compiled(query.device.type)
        output: Tensor = call(*operands, block_mask=self._masks[window], scale=scaling, enable_gqa=grouped)
        return output.transpose(1, 2)

    def _mask(self, window: int | None) -> BlockMask:
        segments, rows, positions = self._segments, self._rows, self._positions

        def seen(batch: Tensor, head: Tensor, q: Tensor, k: Tensor) -> Tensor:
            beside = (rows[k] == PROMPT) | (rows[k] == rows[q])
            sees = (segments[q] == segments[k]) & beside & (positions[k] <= positions[q])
            return sees if window is None else sees & (positions[q] - positions[k] < window)

        total = len(segments)
        return create_block_mask(seen, None, None, total, total, device=self._device)


@cache
def _compiled(kind: str) -> Callable[..., Any]:
    """Uncompiled on a CPU: there it is the plain computation, for checks."""
    plain: Callable[..., Any] = flex_attention
    return plain if kind == "cpu" else torch.compile(plain, dynamic=True)
