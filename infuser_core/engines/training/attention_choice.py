"""Choice of the attention kernel of a trainer: the fastest available one that agrees with the plain one.

On an accelerator, a candidate is tried once at a small size, forward and backward, against scaled-dot-product attention
over padded buckets; one that is missing, refuses or disagrees is passed over, with its reason. On a CPU that plain one
is also the fastest.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib.util import find_spec

import torch
from torch import Tensor

from infuser_core.engines.hf.attention import Layout
from infuser_core.engines.training.attention import PackedLayout, SegmentShape
from infuser_core.engines.training.fused_attention import FlexLayout, Kernel, VarlenLayout
from infuser_core.errors import EngineError

LayoutMaker = Callable[..., Layout]
"""`make(shapes, device=...)`: who attends to whom in one micro-batch."""

TRIED = (SegmentShape(prompt=37, rows=[21, 5]), SegmentShape(prompt=9, rows=[33]))
"""Prompts and responses of unlike lengths: a kernel that aligns them at their beginning is found out."""
TOLERANCE = {torch.bfloat16: 3e-2, torch.float32: 5e-3, torch.float64: 1e-9}
"""Largest relative distance from the plain output and gradients, by compute dtype."""


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
    """What was chosen."""

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


def _flash(
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
    deterministic: bool,
) -> Tensor:
    """The kernel of the package flash_attn, which aligns queries with the end of the keys."""
    output: Tensor = _package_kernel()(
        query,
        key,
        value,
        starts_q,
        starts_k,
        longest_q,
        longest_k,
        softmax_scale=scaling,
        causal=True,
        window_size=(-1, -1) if window is None else (window - 1, 0),
        deterministic=deterministic,
    )
    return output


@cache
def _package_kernel() -> Kernel:
    from flash_attn import flash_attn_varlen_func

    kernel: Kernel = flash_attn_varlen_func
    return kernel


def _flash_torch(
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
    """The kernel that torch brings, where it brings one."""
    from torch.nn.attention.varlen import varlen_attn

    output = varlen_attn(
        query,
        key,
        value,
        starts_q,
        starts_k,
        longest_q,
        longest_k,
        scale=scaling,
        window_size=(-1, 0) if window is None else (window - 1, 0),
        enable_gqa=query.shape[1] != key.shape[1],
    )
    assert isinstance(output, Tensor)
    return output
