"""Run packed segments through torch's fused variable-length attention, if it agrees with plain padded attention.

Queries are the flat tokens. Every prompt is a separate sequence, and so is every response, whose keys are its prompt's
followed by its own, aligned at the end. On an accelerator, the fused kernel is tested once at a small size, forward and
backward, against scaled-dot-product attention over padded buckets; if it is missing, fails or disagrees, the padded
one is used and the reason recorded. On a CPU the padded one is also the fastest.

Shapes: _T flat tokens, _K gathered keys, heads, D head size.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from inspect import signature
from typing import Any

import numpy as np
import torch
from torch import Tensor

from infuser_core.engines.hf.layouts import AttentionLayout
from infuser_core.engines.hf.output_head import wide_dtype
from infuser_core.engines.training.attention import PackedLayout, SegmentShape
from infuser_core.errors import EngineError

Kernel = Callable[..., Tensor]
"""`kernel(query, key, value, starts_q, starts_k, longest_q, longest_k, scaling=, window=)` of [T, heads, D] tensors:
sequence i is `starts[i]:starts[i + 1]`; its last query sees its last key, and attention is causal."""

LayoutMaker = Callable[..., AttentionLayout]
"""`make(shapes, device=...)`: the attention layout of one micro-batch."""

TEST_SHAPES = (SegmentShape(prompt=37, rows=[21, 5]), SegmentShape(prompt=9, rows=[33]))
"""Prompts and responses of different lengths, to detect a kernel that aligns them at their start."""
TOLERANCE = {torch.bfloat16: 3e-2, torch.float32: 5e-3, torch.float64: 1e-9}
"""Largest relative distance from the plain output and gradients, by compute dtype."""


class VarlenLayout:
    """Attention layout of a packed sequence [1, T] for a variable-length kernel."""

    def __init__(self, shapes: Sequence[SegmentShape], *, device: torch.device, kernel: Kernel) -> None:
        self.longest = max(shape.prompt + max(shape.rows) for shape in shapes)
        sequences = list(_sequences(shapes))
        queries, keys = [len(query) for query, _ in sequences], [len(key) for _, key in sequences]
        self._kernel = kernel
        self._copies = Copies(np.concatenate([key for _, key in sequences]), device)
        self._starts_q, self._starts_k = (
            torch.tensor([0, *np.cumsum(lengths).tolist()], dtype=torch.int32, device=device)
            for lengths in (queries, keys)
        )
        self._longest_q, self._longest_k = max(queries), max(keys)

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, *, scaling: float, window: int | None = None
    ) -> Tensor:
        """Compute the attention output [1, T, heads, D], in the compute dtype of the kernel."""
        kind = query.device.type
        # As autocast would: some norms return fp32, and the kernels take one dtype.
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
        flat = [each[0].to(dtype or each.dtype).transpose(0, 1) for each in (query, key, value)]
        output = self._kernel(
            flat[0].contiguous(),
            self._copies.gather(flat[1]),
            self._copies.gather(flat[2]),
            self._starts_q,
            self._starts_k,
            self._longest_q,
            self._longest_k,
            scaling=scaling,
            window=window,
        )
        return output[None]


class Copies:
    """Gathers flat tokens [T, ...] to copies [K, ...], of which every token has at least one.

    A token's gradient is the sum over its copies in their order, in fp32 or wider and rounded once. The sum of
    `index_select`'s own backward is in the dtype of the gradient, on an accelerator by atomic additions in any order.
    """

    def __init__(self, tokens_K: np.ndarray, device: torch.device) -> None:
        order, counts = np.argsort(tokens_K, kind="stable"), np.bincount(tokens_K)
        first = np.cumsum(counts) - counts
        repeated = np.flatnonzero(counts > 1)
        # Most copies first: the tokens with a next copy are always the first ones.
        repeated = repeated[np.argsort(-counts[repeated], kind="stable")]
        rounds = [order[first[repeated[counts[repeated] > number]] + number] for number in range(1, int(counts.max()))]
        self.tokens, self.first, self.repeated, *self.rounds = (
            torch.from_numpy(each).to(device) for each in (tokens_K, order[first], repeated, *rounds)
        )

    def gather(self, flat: Tensor) -> Tensor:
        """Return the copies of all tokens."""
        copies: Tensor = _Gather.apply(flat, self)
        return copies


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, flat: Tensor, copies: Copies) -> Tensor:
        ctx.copies = copies
        return flat.index_select(0, copies.tokens)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        copies, (gradient,) = ctx.copies, gradients
        result = gradient.index_select(0, copies.first)
        if len(copies.repeated):
            total = result.index_select(0, copies.repeated).to(wide_dtype(result))
            for places in copies.rounds:
                total[: len(places)] += gradient.index_select(0, places)
            result.index_copy_(0, copies.repeated, total.to(result.dtype))
        return result, None


def _sequences(shapes: Sequence[SegmentShape]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield, for every sequence, the indices of its queries and of its keys among the flat tokens."""
    flat = 0
    for shape in shapes:
        prompt = np.arange(flat, flat + shape.prompt)
        yield prompt, prompt
        flat += shape.prompt
        for length in shape.rows:
            own = np.arange(flat, flat + length)
            yield own, np.concatenate([prompt, own])
            flat += length


def choose_attention(
    setting: str, config: object, *, dtype: torch.dtype, device: torch.device
) -> tuple[LayoutMaker, dict[str, str]]:
    """Choose the kernel for a model's `config`: `auto` takes the fused one if it agrees with the plain one.

    Also returns the choice for an artifact's record: `attention`, flash or sdpa, and under `attention_passed_over` the
    reason not to use the fused kernel, if it was tested.
    Raises EngineError if `flash` is set and the fused kernel is missing, fails or disagrees.
    """
    if setting == "sdpa" or (setting == "auto" and device.type == "cpu"):
        return PackedLayout, {"attention": "sdpa"}
    fused = partial(VarlenLayout, kernel=_torch_kernel)
    try:
        error = disagreement(fused, config, dtype, device)
        if error <= TOLERANCE[dtype]:
            return fused, {"attention": "flash"}
        reason = f"differs from plain attention by {error:.1e}"
    except (RuntimeError, ImportError, ValueError, TypeError, AssertionError) as failure:
        message = str(failure).strip()
        reason = message.splitlines()[0][:200] if message else type(failure).__name__
    if setting == "flash":
        raise EngineError(f"engine.attention flash cannot be used on {device}: {reason}", hint="choose auto or sdpa")
    return PackedLayout, {"attention": "sdpa", "attention_passed_over": reason}


def disagreement(make: LayoutMaker, config: object, dtype: torch.dtype, device: torch.device) -> float:
    """Measure the largest relative distance of outputs and gradients from those of the plain padded layout."""
    ours, plain = (_run_layout(each, config, dtype, device) for each in (make, PackedLayout))
    return max(float((a - b).norm() / b.norm()) for a, b in zip(ours, plain, strict=True))


def _run_layout(make: LayoutMaker, config: Any, dtype: torch.dtype, device: torch.device) -> list[Tensor]:
    """Compute output and gradients of query, key and value, fp64, for fixed random operands."""
    queries = int(config.num_attention_heads)
    keys = int(getattr(config, "num_key_value_heads", None) or queries)
    size = int(
        getattr(config, "qk_head_dim", None) or getattr(config, "head_dim", None) or config.hidden_size // queries
    )
    value_size = int(getattr(config, "v_head_dim", None) or size)
    generator = torch.Generator().manual_seed(0)
    total = sum(shape.prompt + sum(shape.rows) for shape in TEST_SHAPES)

    def random(count: int, width: int = size) -> Tensor:
        return torch.randn(1, count, total, width, generator=generator).to(device, dtype)

    operands = [each.requires_grad_() for each in (random(queries), random(keys), random(keys, value_size))]
    slopes = random(queries, value_size).transpose(1, 2)
    output = make(TEST_SHAPES, device=device).attend(0, *operands, scaling=size**-0.5)
    output.backward(slopes.to(output.dtype))
    return [each.detach().double() for each in (output, *(operand.grad for operand in operands)) if each is not None]


@cache
def _has_grouping(kernel: Callable[..., object]) -> bool:
    return "enable_gqa" in signature(kernel).parameters


def _torch_kernel(query: Tensor, key: Tensor, *operands: Any, scaling: float, window: int | None) -> Tensor:
    """Run torch's variable-length attention kernel. Raises ImportError if torch has none."""
    from torch.nn.attention.varlen import varlen_attn

    sizes = (-1, 0) if window is None else (window - 1, 0)
    # The kernel of torch 2.11, which accelerators use with vLLM 0.26, accepts grouped heads without this argument.
    grouped: dict[str, Any] = {"enable_gqa": query.shape[1] != key.shape[1]} if _has_grouping(varlen_attn) else {}
    output = varlen_attn(query, key, *operands, scale=scaling, window_size=sizes, **grouped)
    assert isinstance(output, Tensor)
    return output
