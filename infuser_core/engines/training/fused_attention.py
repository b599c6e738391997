"""Fused attention kernels over packed segments, and the choice of the fastest that agrees with the plain one.

Queries are the flat tokens as they stand. For a variable-length kernel every prompt is a sequence of its own, and every
response one whose keys are its prompt's and then its own, aligned at the end; for flex attention the rule of who sees
whom is compiled into the kernel. On an accelerator, a candidate is tried once at a small size, forward and backward,
against scaled-dot-product attention over padded buckets; one that is missing, refuses or disagrees is passed over, with
its reason. On a CPU the plain one is also the fastest. Shapes: _T flat tokens, _K gathered keys, heads, D head size.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from infuser_core.engines.hf.layouts import Layout
from infuser_core.engines.training.attention import PackedLayout, SegmentShape
from infuser_core.errors import EngineError

Kernel = Callable[..., Tensor]
"""`kernel(query, key, value, starts_q, starts_k, longest_q, longest_k, scaling=, window=)` of [T, heads, D] tensors:
sequence i is `starts[i]:starts[i + 1]`; its last query sees its last key, and nobody looks ahead."""

LayoutMaker = Callable[..., Layout]
"""`make(shapes, device=...)`: who attends to whom in one micro-batch."""

TRIED = (SegmentShape(prompt=37, rows=[21, 5]), SegmentShape(prompt=9, rows=[33]))
"""Prompts and responses of unlike lengths: a kernel that aligns them at their beginning is found out."""
TOLERANCE = {torch.bfloat16: 3e-2, torch.float32: 5e-3, torch.float64: 1e-9}
"""Largest relative distance from the plain output and gradients, by compute dtype."""

PROMPT = -1
"""Row number of a prompt's tokens."""


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
    """An operand as autocast would cast it: some norms hand on fp32, and the kernels take one dtype."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Heads:
    """The attention of a model."""

    query: int
    """Query heads."""
    key: int
    """Key-value heads."""
    size: int
    """Head dimension."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The chosen layouts."""

    name: str
    """flash, flash-torch, flex or sdpa."""
    make: LayoutMaker
    """Layouts of it."""
    passed_over: Mapping[str, str]
    """Faster candidates, and why each was not taken."""


def heads_of(config: object) -> Heads:
    """The attention of a transformers configuration."""
    query = int(getattr(config, "num_attention_heads"))  # noqa: B009
    key = int(getattr(config, "num_key_value_heads", None) or query)
    size = getattr(config, "head_dim", None) or int(getattr(config, "hidden_size")) // query  # noqa: B009
    return Heads(query=query, key=key, size=int(size))


def choose(asked: str, *, heads: Heads, dtype: torch.dtype, device: torch.device, exact: bool = False) -> Choice:
    """`auto` takes the first candidate that passes; a named one must pass. `exact` asks for repeatable gradients.

    Raises EngineError for a named candidate that is missing, refuses or disagrees.
    """
    plain = Choice(name="sdpa", make=PackedLayout, passed_over={})
    if asked == "sdpa" or (asked == "auto" and device.type == "cpu"):
        return plain
    passed_over: dict[str, str] = {}
    for name, make in _candidates(asked, exact=exact):
        reason = _refusal(name, make, heads, dtype, device)
        if not reason:
            return Choice(name=name, make=make, passed_over=passed_over)
        passed_over[name] = reason
    if asked != "auto":
        reasons = "; ".join(f"{name}: {reason}" for name, reason in passed_over.items())
        raise EngineError(f"engine.attention {asked} cannot be used on {device}: {reasons}", hint="choose auto or sdpa")
    return Choice(name="sdpa", make=PackedLayout, passed_over=passed_over)


def _candidates(asked: str, *, exact: bool) -> Iterator[tuple[str, LayoutMaker]]:
    """In the order of preference."""
    if asked in ("auto", "flash"):
        yield "flash", partial(VarlenLayout, kernel=partial(_flash, deterministic=exact))
        yield "flash-torch", partial(VarlenLayout, kernel=_flash_torch)
    if asked in ("auto", "flex"):
        yield "flex", FlexLayout


def _refusal(name: str, make: LayoutMaker, heads: Heads, dtype: torch.dtype, device: torch.device) -> str:
    """Why a candidate cannot be used here; empty where it can."""
    if name == "flash" and find_spec("flash_attn") is None:
        return "the package flash_attn is not installed"
    try:
        error = disagreement(make, heads, dtype, device)
    except (RuntimeError, ImportError, ValueError, TypeError, AssertionError) as refused:
        return str(refused).strip().splitlines()[0][:200] if str(refused).strip() else type(refused).__name__
    return "" if error <= TOLERANCE[dtype] else f"differs from plain attention by {error:.1e}"


def disagreement(make: LayoutMaker, heads: Heads, dtype: torch.dtype, device: torch.device) -> float:
    """Largest relative distance of outputs and gradients from those of the plain layout."""
    ours, plain = (_tried(each, heads, dtype, device) for each in (make, PackedLayout))
    return max(float((a - b).norm() / b.norm()) for a, b in zip(ours, plain, strict=True))


def _tried(make: LayoutMaker, heads: Heads, dtype: torch.dtype, device: torch.device) -> list[Tensor]:
    """Output and gradients of query, key and value, fp64, for fixed random operands."""
    draw = torch.Generator().manual_seed(0)
    total = sum(shape.prompt + sum(shape.rows) for shape in TRIED)

    def random(count: int) -> Tensor:
        return torch.randn(1, count, total, heads.size, generator=draw).to(device, dtype)

    operands = [random(count).requires_grad_() for count in (heads.query, heads.key, heads.key)]
    slopes = random(heads.query).transpose(1, 2)
    output = make(TRIED, device=device).attend(0, *operands, scaling=heads.size**-0.5)
    output.backward(slopes.to(output.dtype))
    return [each.detach().double() for each in (output, *(operand.grad for operand in operands)) if each is not None]


def _flash(*operands: Any, scaling: float, window: int | None, deterministic: bool) -> Tensor:
    """The kernel of the package flash_attn, which aligns queries with the end of the keys."""
    sizes = (-1, -1) if window is None else (window - 1, 0)
    output: Tensor = _package_kernel()(
        *operands, softmax_scale=scaling, causal=True, window_size=sizes, deterministic=deterministic
    )
    return output


@cache
def _package_kernel() -> Kernel:
    from flash_attn import flash_attn_varlen_func

    kernel: Kernel = flash_attn_varlen_func
    return kernel


def _flash_torch(query: Tensor, key: Tensor, *operands: Any, scaling: float, window: int | None) -> Tensor:
    """The kernel that torch brings, where it brings one."""
    from torch.nn.attention.varlen import varlen_attn

    sizes, grouped = (-1, 0) if window is None else (window - 1, 0), query.shape[1] != key.shape[1]
    output = varlen_attn(query, key, *operands, scale=scaling, window_size=sizes, enable_gqa=grouped)
    assert isinstance(output, Tensor)
    return output
