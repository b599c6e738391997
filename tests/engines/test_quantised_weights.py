"""Quantised matrices of an engine are the checkpoint's to what e4m3 rounds; any other one is found."""

from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from infuser_core.engines.vllm.held import checksums, errors

HEIGHTS, WIDTH, TOP = {"q_proj": 6, "k_proj": 3, "v_proj": 3}, 10, 448.0
E4M3 = torch.float8_e4m3fn


class Scaled:
    """What vLLM's kernels compute: both factors in e4m3, one scale for the matrix and one for each row of the input."""

    def apply(self, layer: nn.Module, given: Tensor, bias: None = None) -> Tensor:
        scales = given.float().abs().amax(1, keepdim=True) / TOP
        rows = (given.float() / scales).to(E4M3).float()
        return ((rows @ layer.weight.float()) * layer.weight_scale * scales).to(torch.bfloat16)


def engine(own: dict[str, Tensor]) -> nn.Module:
    """A model with one fused layer, quantised as a whole and transposed."""
    fused = torch.cat([own[f"layer.{part}.weight"].float() for part in HEIGHTS])
    scale = fused.abs().max() / TOP
    model, layer = nn.Module(), nn.Module()
    layer.weight = nn.Parameter((fused / scale).to(E4M3).T, requires_grad=False)
    layer.weight_scale, layer.quant_method = scale, Scaled()
    layer.input_size_per_partition, layer.output_partition_sizes = WIDTH, list(HEIGHTS.values())
    model.layer = nn.Module()
    model.layer.qkv_proj = layer
    model.packed_modules_mapping = {"qkv_proj": list(HEIGHTS)}
    return model


def matrices(seed: int, spread: float) -> dict[str, Tensor]:
    torch.manual_seed(seed)
    return {
        f"layer.{part}.weight": (torch.randn(rows, WIDTH) * torch.exp(spread * torch.randn(rows, WIDTH))).bfloat16()
        for part, rows in HEIGHTS.items()
    }


@given(st.integers(0, 10_000), st.floats(0, 4))
def test_rounding_is_never_more_than_the_bound(seed: int, spread: float) -> None:
    own = matrices(seed, spread)
    found = errors(engine(own), own, "bfloat16")
    assert list(found) == list(own) and max(found.values()) <= 1
    # Nothing else is said of them.
    assert checksums(engine(own), {name: list(each.shape) for name, each in own.items()}, "bfloat16") == {}


def doubled(layer: SimpleNamespace) -> None:
    layer.weight_scale = layer.weight_scale * 2


def nudged(layer: SimpleNamespace) -> None:
    """Two of the format's steps in the largest number."""
    values = layer.weight.float().contiguous()
    place = values.abs().argmax()
    values.view(-1)[place] *= 0.75
    layer.weight.copy_(values.to(E4M3))


def turned(layer: SimpleNamespace) -> None:
    layer.weight.copy_(layer.weight.float().flip(0).to(E4M3))


@pytest.mark.parametrize("spoil", [doubled, nudged, turned])
def test_other_matrices_are_found(spoil: Callable[..., None]) -> None:
    own = matrices(3, 0.5)
    model = engine(own)
    spoil(model.layer.qkv_proj)
    assert max(errors(model, own, "bfloat16").values()) > 1
