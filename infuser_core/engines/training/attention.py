"""Compute attention over packed segments: a response attends to its prompt and itself, never to other responses.

Linear layers run on the flat tokens; only attention uses padded buckets of segments of similar shape, because a batched
kernel is faster than one call per segment. Shapes: _T flat tokens, _G segments, _N responses, _P prompt tokens,
_L response tokens, _H key-value heads, _D head size.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from infuser_core.engines.hf.layouts import causal_window

QUERIES = 96
"""Query tokens of a response per call: the calls of a long response skip the keys after their tokens."""

PADDED_WORK = 1.25
"""A bucket takes one more segment if padding multiplies its attention work by at most this factor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentShape:
    """Lengths in tokens of a segment's prompt and of each response after it."""

    prompt: int
    rows: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """Segments that attend in one kernel call, padded to the same shape."""

    start: int
    """First padded slot of the bucket: first the prompts [G, P], then the responses [G, N, L]."""
    groups: int
    """Segments, G."""
    prompt: int
    """Longest prompt, P."""
    samples: int
    """Most responses, N."""
    response: int
    """Longest response, L."""
    padding_GP: Tensor | None
    """True at prompt slots that are padding; None if all prompts have one length."""

    @property
    def middle(self) -> int:
        """First slot of the responses."""
        return self.start + self.groups * self.prompt

    @property
    def stop(self) -> int:
        """One past the last slot."""
        return self.middle + self.groups * self.samples * self.response


class PackedLayout:
    """Attention layout of a packed sequence [1, T], with the index maps between flat tokens and padded slots."""

    def __init__(self, shapes: Sequence[SegmentShape], *, device: torch.device) -> None:
        self.longest = max(shape.prompt + max(shape.rows) for shape in shapes)
        self._buckets: list[Bucket] = []
        slots: list[np.ndarray] = []
        used, flat = 0, 0
        for members in _split_buckets(shapes):
            bucket, places, flat = _build_bucket(members, used, flat, device)
            self._buckets.append(bucket)
            slots.append(places)
            used = bucket.stop
        slots_all = np.concatenate(slots)
        pads = np.flatnonzero(slots_all < 0)
        inverse = np.empty(flat, dtype=np.int64)
        real = np.flatnonzero(slots_all >= 0)
        inverse[slots_all[real]] = real
        slots_all[pads] = 0
        self._slots, self._pads, self._inverse = (
            torch.from_numpy(each).to(device) for each in (slots_all, pads, inverse)
        )

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, *, scaling: float, window: int | None = None
    ) -> Tensor:
        """Compute the attention output [1, T, heads, E], E the head size of values."""
        # From [1, heads, T, D] to padded slots [slots, heads, D].
        padded = [
            _Unpack.apply(each[0].transpose(0, 1).flatten(1), self._slots, self._inverse).unflatten(1, each.shape[1::2])
            for each in (query, key, value)
        ]
        parts = [out for bucket in self._buckets for out in _attend(bucket, *padded, scaling=scaling, window=window)]
        flat = _Pack.apply(torch.cat(parts), self._slots, self._pads, self._inverse)
        return flat.view(1, -1, query.shape[1], value.shape[3])


class _Unpack(torch.autograd.Function):
    """Copies flat tokens to padded slots. Pads repeat token 0 and are never read, so that backward gathers as well."""

    @staticmethod
    def forward(ctx: Any, flat: Tensor, slots: Tensor, inverse: Tensor) -> Tensor:
        ctx.save_for_backward(inverse)
        return flat.index_select(0, slots)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (inverse,) = ctx.saved_tensors
        return gradients[0].index_select(0, inverse), None, None


class _Pack(torch.autograd.Function):
    """Copies padded slots to flat tokens; pads get a zero gradient."""

    @staticmethod
    def forward(ctx: Any, padded: Tensor, slots: Tensor, pads: Tensor, inverse: Tensor) -> Tensor:
        ctx.save_for_backward(slots, pads)
        return padded.index_select(0, inverse)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        slots, pads = ctx.saved_tensors
        return gradients[0].index_select(0, slots).index_fill_(0, pads, 0.0), None, None, None


def _attend(
    bucket: Bucket, query: Tensor, key: Tensor, value: Tensor, *, scaling: float, window: int | None
) -> Iterator[Tensor]:
    """Yield the outputs of a bucket's prompt slots and of its response slots, each [slots, heads * D]."""
    prompts = slice(bucket.start, bucket.middle)
    responses = slice(bucket.middle, bucket.stop)
    grid = (bucket.groups, bucket.prompt)
    operands = [each[prompts].unflatten(0, grid) for each in (query, key, value)]
    yield _prompt_attention(*operands, scaling=scaling, window=window)
    yield _response_attention(
        bucket, query[responses], *_response_keys(bucket, key, value), scaling=scaling, window=window
    )


def _prompt_attention(query: Tensor, key: Tensor, value: Tensor, *, scaling: float, window: int | None) -> Tensor:
    """Compute causal attention of [G, P, heads, D]; prompts are padded on the right, so that no real token sees it."""
    repeats = query.shape[2] // key.shape[2]
    keys, values = (each.repeat_interleave(repeats, 2).transpose(1, 2) for each in (key, value))
    mask = None if window is None else causal_window(query.shape[1], window, device=query.device)
    output = F.scaled_dot_product_attention(
        query.transpose(1, 2), keys, values, attn_mask=mask, is_causal=mask is None, scale=scaling
    )
    return output.transpose(1, 2).flatten(2).flatten(0, 1)


def _response_keys(bucket: Bucket, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Join keys and values of every response: its prompt's, then its own, [G N, H, P + L, D]."""
    groups, samples, width = bucket.groups, bucket.samples, bucket.prompt

    def join(states: Tensor) -> Tensor:
        prompt = states[bucket.start : bucket.middle].unflatten(0, (groups, 1, width))
        own = states[bucket.middle : bucket.stop].unflatten(0, (groups, samples, bucket.response))
        shared = prompt.expand(-1, samples, -1, -1, -1)
        return torch.cat([shared, own], dim=2).flatten(0, 1).transpose(1, 2)

    return join(key), join(value)


def _response_attention(
    bucket: Bucket, query: Tensor, keys: Tensor, values: Tensor, *, scaling: float, window: int | None
) -> Tensor:
    kv_heads, size = keys.shape[1], keys.shape[3]
    repeats = query.shape[1] // kv_heads
    mask = _response_mask(bucket, query.device, window)
    # Query heads that share a key head become rows of one query block: keys are read once and never repeated.
    grouped = query.view(-1, bucket.response, kv_heads, repeats, size).permute(0, 2, 3, 1, 4)
    parts = []
    for start in range(0, bucket.response, QUERIES):
        stop = min(start + QUERIES, bucket.response)
        visible = bucket.prompt + stop
        part = F.scaled_dot_product_attention(
            grouped[..., start:stop, :].flatten(2, 3),
            keys[:, :, :visible],
            values[:, :, :visible],
            attn_mask=mask[:, start:stop, :visible].repeat(1, repeats, 1)[:, None],
            scale=scaling,
        )
        parts.append(part.unflatten(2, (repeats, -1)))
    return torch.cat(parts, dim=3).permute(0, 3, 1, 2, 4).reshape(len(query), -1)


def _response_mask(bucket: Bucket, device: torch.device, window: int | None) -> Tensor:
    """Mask of response tokens, [rows or 1, L, P + L]: the unpadded prompt, and the response up to each, in `window`."""
    own_LL = causal_window(bucket.response, window or bucket.response, device=device)
    prompt_GLP = torch.ones(1, 1, bucket.prompt, dtype=torch.bool, device=device)
    if bucket.padding_GP is not None:
        prompt_GLP = ~bucket.padding_GP[:, None]
    if window is not None:
        # The distance from a response token to a prompt token depends on the length of the prompt.
        lengths_G = prompt_GLP.expand(bucket.groups, -1, -1).sum((1, 2))
        places_GL = lengths_G[:, None] + torch.arange(bucket.response, device=device)
        prompt_GLP = prompt_GLP & (places_GL[:, :, None] - torch.arange(bucket.prompt, device=device) < window)
    parts = [prompt_GLP.expand(-1, bucket.response, -1), own_LL.expand(len(prompt_GLP), -1, -1)]
    mask = torch.cat(parts, dim=2)
    # A mask that all groups share is broadcast over groups and samples.
    return mask if bucket.padding_GP is None and window is None else mask.repeat_interleave(bucket.samples, 0)


def _attention_work(groups: int, prompt: int, samples: int, response: int) -> int:
    return groups * (prompt * prompt // 2 + samples * response * (prompt + response))


def _split_buckets(shapes: Sequence[SegmentShape]) -> Iterator[Sequence[SegmentShape]]:
    """Split segments into buckets whose padding stays within PADDED_WORK."""
    start, unpadded, prompt, samples, response = 0, 0, 0, 0, 0
    for place, shape in enumerate(shapes):
        own = _attention_work(1, shape.prompt, len(shape.rows), max(shape.rows))
        wider = (max(prompt, shape.prompt), max(samples, len(shape.rows)), max(response, max(shape.rows)))
        if place > start and _attention_work(place - start + 1, *wider) > PADDED_WORK * (unpadded + own):
            yield shapes[start:place]
            start, unpadded, wider = place, 0, (shape.prompt, len(shape.rows), max(shape.rows))
        unpadded += own
        prompt, samples, response = wider
    yield shapes[start:]


def _build_bucket(
    shapes: Sequence[SegmentShape], start: int, flat: int, device: torch.device
) -> tuple[Bucket, np.ndarray, int]:
    """Build a bucket; also returns the flat token of each slot (-1 for padding), and the first flat token after it."""
    width, samples = max(shape.prompt for shape in shapes), max(len(shape.rows) for shape in shapes)
    response = max(max(shape.rows) for shape in shapes)
    prompts = np.full((len(shapes), width), -1, dtype=np.int64)
    responses = np.full((len(shapes), samples, response), -1, dtype=np.int64)
    for place, shape in enumerate(shapes):
        prompts[place, : shape.prompt] = np.arange(flat, flat + shape.prompt)
        flat += shape.prompt
        for row, length in enumerate(shape.rows):
            responses[place, row, :length] = np.arange(flat, flat + length)
            flat += length
    padding = prompts < 0
    bucket = Bucket(
        start=start,
        groups=len(shapes),
        prompt=width,
        samples=samples,
        response=response,
        padding_GP=torch.from_numpy(padding).to(device) if padding.any() else None,
    )
    return bucket, np.concatenate([prompts.reshape(-1), responses.reshape(-1)]), flat
