"""Checksums of weights: blocks that add up, one changed number, an engine that continues, quantised matrices."""

from itertools import pairwise
from pathlib import Path

import pytest
import torch
from engine_tiny import make_checkpoint
from hypothesis import given
from hypothesis import strategies as st
from spoiled_engines import SpoiledSampler, nudged
from torch import Tensor, nn

from infuser_core.engines.service.checksum import checksum, matrix, of_run, of_tensors, whole
from infuser_core.engines.service.launch import HF
from infuser_core.engines.vllm.weights import checksums
from infuser_core.errors import EngineWarning

SIZE = st.integers(1, 9)


@given(SIZE, SIZE, SIZE, SIZE, st.sampled_from(["float32", "bfloat16", "float64"]))
def test_blocks_of_a_tensor_add_up_to_it(rows: int, columns: int, high: int, wide: int, dtype: str) -> None:
    tensor = torch.randn(rows, columns).to(getattr(torch, dtype))
    blocks = [
        (
            row,
            column,
            checksum(tensor[row : row + high, column : column + wide], row=row, column=column),
        )
        for row in range(0, rows, high)
        for column in range(0, columns, wide)
    ]
    assert whole([*blocks, *blocks]) == of_tensors({"it": tensor}, dtype)["it"]
    assert whole(blocks[1:]) != whole(blocks)
    row, column, one = blocks[0]
    assert whole([*blocks, (row, column, one + 1)]) == -1


@given(SIZE, SIZE, st.lists(st.integers(0, 81), max_size=4), st.sampled_from(["float32", "bfloat16"]))
def test_runs_of_a_tensor_add_up_to_it_wherever_it_is_cut(rows: int, width: int, cuts: list[int], dtype: str) -> None:
    tensor = torch.randn(rows, width).to(getattr(torch, dtype))
    edges = sorted({0, rows * width, *(cut for cut in cuts if cut < rows * width)})
    runs = [(start, tensor.flatten()[start:stop]) for start, stop in pairwise(edges)]
    blocks = [block for start, run in runs for block in of_run(run, start, width)]
    assert whole(blocks) == of_tensors({"it": tensor}, dtype)["it"]
    assert whole(blocks[1:]) != whole(blocks)


def test_order_and_the_last_bit_count_and_the_sign_of_zero_does_not() -> None:
    tensor = torch.arange(12.0).reshape(3, 4)
    near = tensor.clone()
    near[2, 3] = torch.nextafter(near[2, 3], torch.tensor(0.0))
    found = of_tensors({"it": tensor, "flipped": tensor.flip(0), "flat": tensor.T, "near": near}, "float32")
    assert len(set(found.values())) == 4
    assert checksum(matrix(-torch.zeros(3))) == checksum(matrix(torch.zeros(3)))


@pytest.mark.long
def test_one_number_that_a_running_engine_has_wrong_is_noticed(tmp_path: Path) -> None:
    sampler = SpoiledSampler(nudged, dtype="float32", device="cpu", threads=1, worker=HF)
    sampler.load(make_checkpoint(tmp_path / "one"))
    (found,) = sampler.agreements
    with pytest.warns(EngineWarning, match=rf"checksums of 1 of {found.tensors} tensors differ, e.g. \S+k_proj.weight"):
        sampler.load(make_checkpoint(tmp_path / "two", seed=2))
    assert sampler.starts == 2 and sampler.agreements[0].tensors == found.tensors > 10
    sampler.close()


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
