"""Attention over packed segments by flex attention: the rule of who sees whom is compiled into the kernel.

Shapes: _T flat tokens.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from infuser_core.engines.packed_layout import SegmentShape
from infuser_core.engines.varlen_layout import in_compute_dtype

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
