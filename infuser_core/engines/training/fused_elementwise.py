"""Norms, rotations and gates of a model under autocast, each as one kernel forward and one backward.

transformers computes them operator by operator, in fp32 if the residual stream is, and autocast then rounds what enters
the next product. A kernel does the same arithmetic in fp32, reads its operands once, and writes the rounded result.
torch.compile generates it. Without autocast the model's own code runs.

RMS norm: Zhang and Sennrich 2019, arXiv 1910.07467, eq. 4; rotation: Su et al. 2021, arXiv 2104.09864, eq. 34; gate:
Shazeer 2020, arXiv 2002.05202, eq. 6 with SiLU.
Shapes: _R rows, _D features, _T tokens, _A attention heads.
"""

from collections.abc import Callable
from functools import cache, partial
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from transformers import PreTrainedModel
from transformers.activations import SiLUActivation

from infuser_core.errors import EngineError

ROTATION = "apply_rotary_pos_emb"
"""Function of a module of transformers that rotates queries and keys."""
TOLERANCE = 1e-4
"""Largest absolute distance of a layer in fp32 from the formula that would replace it, at values of about 1."""


def normalise(x_RD: Tensor, weight_D: Tensor, epsilon: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Compute x / rms(x) * weight in `dtype`, and 1 / rms(x) [R, 1] in fp32."""
    wide = x_RD.float()
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + epsilon)
    return (wide * scale * weight_D).to(dtype), scale


def normalise_backward(slopes_RD: Tensor, x_RD: Tensor, weight_D: Tensor, scale_R1: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the gradients of x and weight."""
    normed, slopes = x_RD.float() * scale_R1, slopes_RD.float()
    inner = slopes * weight_D
    x = scale_R1 * (inner - normed * (inner * normed).mean(-1, keepdim=True))
    return x.to(x_RD.dtype), (slopes * normed).sum(0)


def rotate(x_TAD: Tensor, cos_TD: Tensor, sin_TD: Tensor, dtype: torch.dtype) -> Tensor:
    """Rotate the two halves of the features of every head by the angles of its token."""
    wide, half = x_TAD.float(), x_TAD.shape[-1] // 2
    turned = torch.cat([-wide[..., half:], wide[..., :half]], -1)
    return (wide * cos_TD[:, None] + turned * sin_TD[:, None]).to(dtype)


def rotate_backward(slopes_TAD: Tensor, cos_TD: Tensor, sin_TD: Tensor, dtype: torch.dtype) -> Tensor:
    """Compute the gradient of x."""
    slopes, half = slopes_TAD.float(), slopes_TAD.shape[-1] // 2
    across = slopes * sin_TD[:, None]
    return (slopes * cos_TD[:, None] + torch.cat([across[..., half:], -across[..., :half]], -1)).to(dtype)


def gate(gate_RD: Tensor, up_RD: Tensor) -> Tensor:
    """Compute silu(gate) * up."""
    wide = gate_RD.float()
    return (wide * torch.sigmoid(wide) * up_RD.float()).to(gate_RD.dtype)


def gate_backward(slopes_RD: Tensor, gate_RD: Tensor, up_RD: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the gradients of gate and up."""
    slopes, wide = slopes_RD.float(), gate_RD.float()
    share = torch.sigmoid(wide)
    gated = slopes * up_RD.float() * share * (1.0 + wide * (1.0 - share))
    return gated.to(gate_RD.dtype), (slopes * wide * share).to(up_RD.dtype)


Kernel = Callable[..., Any]
"""One of the functions above."""


@cache
def _compiled(function: Kernel) -> Kernel:
    compiled: Kernel = torch.compile(function, dynamic=False)
    return compiled


def _run(function: Kernel, *operands: Any) -> Any:
    """Run a function as one kernel for any number of rows or tokens."""
    for operand in operands:
        if isinstance(operand, Tensor) and operand.dim() > 1:
            torch._dynamo.maybe_mark_dynamic(operand, 0)
    with torch.autocast(operands[0].device.type, enabled=False):
        return _compiled(function)(*operands)


class _Normalise(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_RD: Tensor, weight_D: Tensor, epsilon: float, dtype: torch.dtype) -> Tensor:
        result, scale_R1 = _run(normalise, x_RD, weight_D, epsilon, dtype)
        ctx.save_for_backward(x_RD, weight_D, scale_R1)
        normed: Tensor = result
        return normed

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        return *_run(normalise_backward, slopes[0].contiguous(), *ctx.saved_tensors), None, None


class _Rotate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_TAD: Tensor, cos_TD: Tensor, sin_TD: Tensor, dtype: torch.dtype) -> Tensor:
        ctx.save_for_backward(cos_TD, sin_TD)
        ctx.dtype = x_TAD.dtype
        result: Tensor = _run(rotate, x_TAD, cos_TD, sin_TD, dtype)
        return result

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        return _run(rotate_backward, slopes[0].contiguous(), *ctx.saved_tensors, ctx.dtype), None, None, None


class _Gate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gate_RD: Tensor, up_RD: Tensor) -> Tensor:
        ctx.save_for_backward(gate_RD, up_RD)
        result: Tensor = _run(gate, gate_RD, up_RD)
        return result

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        gradients: tuple[Tensor, Tensor] = _run(gate_backward, slopes[0].contiguous(), *ctx.saved_tensors)
        return gradients


def _autocast(tensor: Tensor) -> torch.dtype | None:
    """Return the dtype to which autocast rounds the operands of products; None if it is off."""
    kind = tensor.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None


def _norm_forward(layer: Any, plain: Kernel, epsilon: float, x: Tensor) -> Tensor:
    dtype = _autocast(x)
    if dtype is None:
        result: Tensor = plain(x)
        return result
    return _Normalise.apply(x.reshape(-1, x.shape[-1]), layer.weight, epsilon, dtype).view(x.shape)


def _gated_forward(layer: Any, plain: Kernel, x: Tensor) -> Tensor:
    if _autocast(x) is None:
        result: Tensor = plain(x)
        return result
    gated, up = (projection(x).flatten(0, -2) for projection in (layer.gate_proj, layer.up_proj))
    result = layer.down_proj(_Gate.apply(gated, up).view(*x.shape[:-1], -1))
    return result


def _rotation(plain: Kernel) -> Kernel:
    """Make a function that rotates queries and keys [1, A, T, D] as `plain` does."""

    def rotate_both(query: Tensor, key: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        dtype = _autocast(query)
        if dtype is None or len(query) > 1 or cos.shape[-1] != query.shape[-1]:
            result: tuple[Tensor, Tensor] = plain(query, key, cos, sin)
            return result
        query, key = (
            _Rotate.apply(each[0].transpose(0, 1).contiguous(), cos[0], sin[0], dtype).transpose(0, 1)[None]
            for each in (query, key)
        )
        return query, key

    return rotate_both


def choose_elementwise(setting: str, *, dtype: torch.dtype, device: torch.device) -> dict[str, str]:
    """Choose how elementwise work is computed: `auto` takes one kernel each on an accelerator, if they can be compiled.

    Returns the choice for an artifact's record: `elementwise`, fused or plain, and under `elementwise_passed_over` why
    kernels are not used. Raises EngineError if `fused` is set and they cannot be compiled.
    """
    if dtype != torch.bfloat16 or setting == "plain" or (setting == "auto" and device.type == "cpu"):
        return {"elementwise": "plain"}
    try:
        rows, weight = torch.ones(3, 8, device=device), torch.ones(8, device=device)
        for function, operands in ((normalise, (rows, weight, 1e-6, torch.bfloat16)), (gate, (rows, rows))):
            _run(function, *operands)
    # torch.compile fails in as many ways as compilers, linkers and their files do.
    except (RuntimeError, ImportError, OSError, ValueError, TypeError, AttributeError) as failure:
        lines = str(failure).strip().splitlines()
        reason = lines[0][:200] if lines else type(failure).__name__
        if setting == "fused":
            text = f"engine.elementwise fused cannot be used on {device}: {reason}"
            raise EngineError(text, hint="choose auto or plain") from failure
        return {"elementwise": "plain", "elementwise_passed_over": reason}
    return {"elementwise": "fused"}


def fuse_elementwise(model: PreTrainedModel) -> int:
    """Make a model's RMS norms, gates and rotations single kernels under autocast; returns their number.

    A layer that computes something else keeps its code.
    """
    count = 0
    for layer in model.modules():
        forward = layer.forward
        if _is_gate(layer):
            layer.forward = partial(_gated_forward, layer, forward)
        elif (epsilon := _norm_epsilon(layer)) is not None:
            layer.forward = partial(_norm_forward, layer, forward, epsilon)
        elif isinstance(code := getattr(forward, "__func__", None), FunctionType) and _rotates(code):
            scope = code.__globals__ | {ROTATION: _rotation(code.__globals__[ROTATION])}
            copy = FunctionType(code.__code__, scope, code.__name__, code.__defaults__, code.__closure__)
            copy.__kwdefaults__ = code.__kwdefaults__
            layer.forward = MethodType(copy, layer)
        else:
            continue
        count += 1
    return count


def _norm_epsilon(layer: nn.Module) -> float | None:
    """Return the epsilon of a plain RMS norm; None for any other layer."""
    epsilon = getattr(layer, "variance_epsilon", getattr(layer, "eps", None))
    weight = getattr(layer, "weight", None)
    if not type(layer).__name__.endswith("RMSNorm") or not isinstance(epsilon, float) or weight is None:
        return None
    draw = torch.Generator().manual_seed(0)
    x, factors = (torch.randn(*shape, weight.shape[-1], generator=draw) for shape in ((2, 3), ()))
    with torch.no_grad():
        own = functional_call(layer, {"weight": factors}, (x,))
    return epsilon if _agree(own, normalise(x, factors, epsilon, torch.float32)[0]) else None


def _is_gate(layer: nn.Module) -> bool:
    names = {name for name, _ in layer.named_children()}
    return names == {"gate_proj", "up_proj", "down_proj", "act_fn"} and isinstance(
        layer.act_fn, nn.SiLU | SiLUActivation
    )


def _rotates(function: FunctionType) -> bool:
    """Whether a layer's forward rotates queries and keys by halves."""
    plain = function.__globals__.get(ROTATION)
    if plain is None or ROTATION not in function.__code__.co_names:
        return False
    draw = torch.Generator().manual_seed(0)
    x, angles = torch.randn(1, 2, 3, 8, generator=draw), torch.randn(1, 3, 8, generator=draw)
    own = plain(x, x, angles, 1.0 - angles)
    return _agree(own[0][0], rotate(x[0].transpose(0, 1), angles[0], 1.0 - angles[0], torch.float32).transpose(0, 1))


def _agree(one: object, other: Tensor) -> bool:
    return isinstance(one, Tensor) and one.shape == other.shape and float((one - other).abs().max()) < TOLERANCE
