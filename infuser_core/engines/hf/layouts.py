"""Layouts of attention calls: which tokens each token attends to, and the key-value cache of a decoding batch.

The cache holds every group's prompt once, and the generated tokens of every sample.

Shapes: _G groups, _N samples per group (a grid of G x N rows), _H key-value heads, _P prompt tokens (right-padded),
_C generated tokens, _D head size of queries and keys, _E head size of values, which some families have narrower.
"""

from collections.abc import Sequence
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

FIRST_CAPACITY = 64
"""Generated tokens allocated at first; doubled when full, so short answers do not pay for the response limit."""


class AttentionLayout(Protocol):
    """Computes attention for one forward call, according to the arrangement of its rows."""

    @property
    def longest(self) -> int:
        """Number of tokens in the longest context of any query."""

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, *, scaling: float, window: int | None = None
    ) -> Tensor:
        """Compute the attention output [rows, tokens, heads, e].

        Shapes: query [rows, heads, tokens, d], key [rows, kv heads, tokens, d], value [rows, kv heads, tokens, e]. With
        `window`, a token sees itself and the `window` - 1 tokens before it.
        """


class DecodeCache:
    """Key-value cache and layout of decoding: each row sees its group's prompt and at most `limit` generated tokens."""

    def __init__(self, lengths_G: Tensor, samples: int, limit: int) -> None:
        self.samples = samples
        self.lengths_G = lengths_G
        self._limit = limit
        self._padding_GP = self._padding()
        self._prompts: dict[int, tuple[Tensor, Tensor]] = {}
        self._own: dict[int, tuple[Tensor, Tensor]] = {}
        self._step = 0

    @property
    def longest(self) -> int:
        """Number of tokens in the longest context: longest prompt plus generated tokens."""
        return int(self.lengths_G.max()) + self._step + 1

    @property
    def groups(self) -> int:
        """Number of groups in the grid."""
        return len(self.lengths_G)

    def store_prompts(self, layer: int, start: int, key: Tensor, value: Tensor) -> None:
        """Store the keys [g, H, p, D] and values [g, H, p, E] of the prompts from row `start` on."""
        if layer not in self._prompts:
            shape = (self.groups, key.shape[1], int(self.lengths_G.max()))
            self._prompts[layer] = (key.new_zeros(*shape, key.shape[3]), value.new_zeros(*shape, value.shape[3]))
        rows, columns = slice(start, start + key.shape[0]), slice(0, key.shape[2])
        self._prompts[layer][0][rows, :, columns] = key
        self._prompts[layer][1][rows, :, columns] = value

    def next_step(self) -> None:
        """Advance every row by one token; call after each forward pass."""
        self._step += 1

    def keep(self, groups: Tensor, rows: Tensor, samples: int) -> None:
        """Shrink the grid to `groups` and to `rows` (indices into the old rows, `samples` per remaining group)."""
        self.lengths_G = self.lengths_G.index_select(0, groups)
        self._padding_GP = self._padding()
        width = int(self.lengths_G.max())
        for layer, pair in self._prompts.items():
            self._prompts[layer] = (_select(pair[0], groups, width), _select(pair[1], groups, width))
        for layer, pair in self._own.items():
            self._own[layer] = (pair[0].index_select(0, rows), pair[1].index_select(0, rows))
        self.samples = samples

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, *, scaling: float, window: int | None = None
    ) -> Tensor:
        """Append this step's key and value to the cache; returns the attention output [G N, 1, heads, E]."""
        if layer not in self._own or self._own[layer][0].shape[2] == self._step:
            self._own[layer] = (self._enlarge(layer, 0, key), self._enlarge(layer, 1, value))
        keys, values = (cached[:, :, : self._step + 1] for cached in self._own[layer])
        keys[:, :, self._step] = key[:, :, 0]
        values[:, :, self._step] = value[:, :, 0]
        prompt_keys, prompt_values = self._prompts[layer]
        groups, kv_heads, width, size = prompt_keys.shape
        repeats = query.shape[1] // kv_heads
        # The samples of a group are queries over one copy of the prompt: a matrix product instead of N vector ones.
        scaled = (query * scaling).view(groups, self.samples, kv_heads, repeats, size).transpose(1, 2)
        scores = scaled.reshape(groups, kv_heads, -1, size) @ prompt_keys.transpose(2, 3)
        hidden_GP = self._hidden_slots(width, window)
        if hidden_GP is not None:
            scores = scores.masked_fill(hidden_GP[:, None, None, :], float("-inf"))
        scores = scores.view(groups, kv_heads, self.samples, repeats, width).transpose(1, 2).flatten(0, 1)
        own = (query * scaling).view(-1, kv_heads, repeats, size) @ keys.transpose(2, 3)
        if window is not None and self._step >= window:
            own[..., : self._step - window + 1] = float("-inf")
        weights = F.softmax(torch.cat([scores, own], dim=-1), dim=-1)
        prompt_weights, own_weights = weights.split([width, own.shape[-1]], dim=-1)
        prompt_weights = prompt_weights.view(groups, self.samples, kv_heads, repeats, width).transpose(1, 2)
        output = prompt_weights.reshape(groups, kv_heads, -1, width) @ prompt_values
        output = output.view(groups, kv_heads, self.samples, repeats, values.shape[3]).transpose(1, 2)
        return (output.flatten(0, 1) + own_weights @ values).reshape(-1, 1, query.shape[1], values.shape[3])

    def _padding(self) -> Tensor | None:
        """True at prompt slots that are padding; None if all prompts have one length."""
        slots_P = torch.arange(int(self.lengths_G.max()), device=self.lengths_G.device)
        padding_GP = slots_P[None] >= self.lengths_G[:, None]
        return padding_GP if bool(padding_GP.any()) else None

    def _hidden_slots(self, width: int, window: int | None) -> Tensor | None:
        """True at prompt slots that are padding or before the window; None if every slot is visible."""
        if window is None:
            return self._padding_GP
        slots_P = torch.arange(width, device=self.lengths_G.device)
        outside_GP = slots_P[None] <= self.lengths_G[:, None] + (self._step - window)
        return outside_GP if self._padding_GP is None else outside_GP | self._padding_GP

    def _enlarge(self, layer: int, part: int, like: Tensor) -> Tensor:
        rows, heads, _, size = like.shape
        capacity = min(self._limit, max(FIRST_CAPACITY, 2 * self._step))
        buffer = like.new_empty((rows, heads, capacity, size))
        if layer in self._own:
            buffer[:, :, : self._step] = self._own[layer][part][:, :, : self._step]
        return buffer


class SlotCache:
    """Key-value cache and layout of decoding in which rows, each with its own prompt, differ in length.

    All tensors keep their places from step to step, so that an accelerator can replay a captured step.
    """

    def __init__(self, rows: int, capacity: int, device: torch.device) -> None:
        self.longest = capacity
        self.lengths_R = torch.zeros(rows, dtype=torch.int64, device=device)
        """Cached tokens of each row: the place of its next key."""
        self._rows_R = torch.arange(rows, device=device)
        self._places_L = torch.arange(capacity, device=device)
        self._pairs: dict[int, tuple[Tensor, ...]] = {}

    def bytes_per_token(self) -> int:
        """Return the bytes that a token of one row takes in all layers that have run so far."""
        return sum(each.nbytes for pair in self._pairs.values() for each in pair) // (len(self._rows_R) * self.longest)

    def resized(self, rows: Sequence[int], count: int, capacity: int) -> "SlotCache":
        """Move the keys and values of some rows to a cache of `count` rows; this one is empty afterwards."""
        cache = SlotCache(count, capacity, self.lengths_R.device)
        rows_K, width = torch.tensor(rows, dtype=torch.int64, device=self.lengths_R.device), min(capacity, self.longest)
        for layer in list(self._pairs):
            # Layer by layer, so that only one exists twice.
            pair = self._pairs.pop(layer)
            for old, new in zip(pair, cache._allocate(layer, *pair), strict=True):
                new[: len(rows), :, :width] = old[:, :, :width].index_select(0, rows_K)
        return cache

    def joining(self, pairs: Sequence[tuple[int, int]]) -> "JoiningRows":
        """Return the receiver of a prefill call, for pairs of a row and the number of its prompt in the call."""
        return JoiningRows(self, *torch.tensor(pairs, device=self.lengths_R.device).T)

    def store(self, layer: int, rows: Tensor, key: Tensor, value: Tensor) -> None:
        """Store the keys [j, H, p, D] and values [j, H, p, E] of the first p tokens of some rows."""
        for cached, new in zip(self._pairs.get(layer) or self._allocate(layer, key, value), (key, value), strict=True):
            cached[rows, :, : new.shape[2]] = new

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, *, scaling: float, window: int | None = None
    ) -> Tensor:
        """Store this step's key and value after each row's own tokens; returns attention's output [R, 1, heads, E]."""
        keys, values = self._pairs.get(layer) or self._allocate(layer, key, value)
        keys[self._rows_R, :, self.lengths_R] = key[:, :, 0]
        values[self._rows_R, :, self.lengths_R] = value[:, :, 0]
        hidden_RL = self._places_L > self.lengths_R[:, None]
        if window is not None:
            hidden_RL |= self._places_L <= self.lengths_R[:, None] - window
        rows, kv_heads, _, size = keys.shape
        scaled = (query * scaling).view(rows, kv_heads, -1, size)
        scores = (scaled @ keys.transpose(2, 3)).masked_fill_(hidden_RL[:, None, None], float("-inf"))
        return (F.softmax(scores, dim=-1) @ values).reshape(rows, 1, query.shape[1], values.shape[3])

    def _allocate(self, layer: int, *like: Tensor) -> tuple[Tensor, ...]:
        # Zeros, since a hidden token's weight of zero times NaN would be NaN.
        shape = (len(self._rows_R), self.longest)
        self._pairs[layer] = tuple(each.new_zeros((shape[0], each.shape[1], shape[1], each.shape[3])) for each in like)
        return self._pairs[layer]


class JoiningRows:
    """Receives a prefill call's keys and values for rows of a `SlotCache`; responses to one prompt share the call."""

    def __init__(self, cache: SlotCache, rows: Tensor, sources: Tensor) -> None:
        self._cache, self._rows, self._sources = cache, rows, sources

    def store_prompts(self, layer: int, start: int, key: Tensor, value: Tensor) -> None:
        """Store the keys [g, H, p, D] and values [g, H, p, E] of the call's prompts from number `start` on."""
        self._cache.store(layer, self._rows, key[start + self._sources], value[start + self._sources])


class PrefillLayout:
    """Layout of a prefill call: right-padded prompts, causal; keys and values go to the cache from row `start`."""

    def __init__(self, cache: DecodeCache | JoiningRows, start: int, longest: int) -> None:
        self.longest = longest
        self._cache = cache
        self._start = start

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, *, scaling: float, window: int | None = None
    ) -> Tensor:
        """Compute causal attention [g, p, heads, E]; padding is on the right, so that no real token sees it."""
        self._cache.store_prompts(layer, self._start, key, value)
        repeats = query.shape[1] // key.shape[1]
        keys, values = key.repeat_interleave(repeats, 1), value.repeat_interleave(repeats, 1)
        if window is not None:
            mask = causal_window(query.shape[2], window, device=query.device)
            return F.scaled_dot_product_attention(query, keys, values, attn_mask=mask, scale=scaling).transpose(1, 2)
        return F.scaled_dot_product_attention(query, keys, values, is_causal=True, scale=scaling).transpose(1, 2)


def causal_window(tokens: int, window: int, *, device: torch.device) -> Tensor:
    """Build a mask [tokens, tokens], True for the token itself and the `window` - 1 tokens before it."""
    return torch.ones(tokens, tokens, dtype=torch.bool, device=device).tril().triu(1 - window)


def _select(tensor: Tensor, rows: Tensor, width: int) -> Tensor:
    return tensor[:, :, :width].index_select(0, rows)
