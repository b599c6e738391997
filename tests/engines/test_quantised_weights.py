"""Quantised matrices of an engine do not pass for the checkpoint's: log-probabilities alone prove them."""

import torch
from torch import Tensor, nn

from infuser_core.engines.service.checksum import of_tensors, whole
from infuser_core.engines.vllm.weights import checksums

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


def test_quantised_matrices_are_named_as_none_of_the_checkpoints_own() -> None:
    torch.manual_seed(3)
    own = {f"layer.{part}.weight": torch.randn(rows, WIDTH).bfloat16() for part, rows in HEIGHTS.items()}
    forms = checksums(engine(own), {name: list(each.shape) for name, each in own.items()}, "bfloat16")
    sums = of_tensors(own, "bfloat16")
    assert forms.keys() == own.keys()
    assert all(whole(form) != sums[name] for name, each in forms.items() for form in each)
