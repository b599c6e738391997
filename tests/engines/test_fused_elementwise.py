"""Norms, rotations and gates as single kernels are those of the model, closer to fp64 than operator by operator."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from engine_tiny import SHAPES, gradient, make_checkpoint, make_groups, trainer
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import AutoModelForCausalLM

from infuser_core.engines.training import fused_elementwise as fused
from infuser_core.engines.training.fused_elementwise import choose_elementwise, fuse_elementwise
from infuser_core.schemas import Checkpoint

CPU = torch.device("cpu")
GROUPS = make_groups([*SHAPES, (6, [30, 2])])


def both(plain: Callable[..., Tensor], ours: Callable[..., Tensor], *operands: Tensor) -> list[list[Tensor]]:
    """Results and gradients of two functions at the same operands and slopes."""
    results = []
    for function in (plain, ours):
        leaves = [each.clone().requires_grad_() for each in operands]
        result = function(*leaves)
        slopes = torch.randn(result.shape, generator=torch.Generator().manual_seed(7))
        results.append([result, *torch.autograd.grad(result, leaves, slopes)])
    return results


@given(rows=st.integers(1, 9), half=st.integers(1, 8), heads=st.integers(1, 3), seed=st.integers(0, 99))
@settings(max_examples=10, deadline=None)
def test_every_kernel_has_the_gradients_of_its_formula(rows: int, half: int, heads: int, seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    x, other = (torch.randn(rows, 2 * half, generator=draw) for _ in range(2))
    weight, states = torch.randn(2 * half, generator=draw), torch.randn(rows, heads, 2 * half, generator=draw)
    wide = torch.float32
    with torch.compiler.set_stance("force_eager"):
        pairs = [
            both(
                lambda x, weight: fused.normalise(x, weight, 1e-6, wide)[0],
                lambda x, weight: fused._Normalise.apply(x, weight, 1e-6, wide),
                x,
                weight,
            ),
            both(fused.gate, fused._Gate.apply, x, other),
            both(
                lambda states: fused.rotate(states, x, other, wide),
                lambda states: fused._Rotate.apply(states, x, other, wide),
                states,
            ),
        ]
    for plain, ours in pairs:
        for one, another in zip(plain, ours, strict=True):
            torch.testing.assert_close(one, another, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("family", "layers"), [("qwen3", 2 * 6 + 1), ("llama", 2 * 4 + 1), ("olmo2", 2 * 6 + 1)])
def test_layers_that_compute_the_formula_are_replaced_under_autocast_alone(
    tmp_path: Path, family: str, layers: int
) -> None:
    make_checkpoint(tmp_path, family=family)
    plain, ours = (AutoModelForCausalLM.from_pretrained(tmp_path / "source", dtype=torch.float32) for _ in range(2))
    assert fuse_elementwise(ours) == layers
    ids = torch.arange(3, 20)[None]
    with torch.no_grad(), torch.compiler.set_stance("force_eager"):
        assert torch.equal(plain(ids).logits, ours(ids).logits)
        with torch.autocast("cpu", torch.bfloat16):
            rounded = [model(ids).logits.float() for model in (plain, ours)]
    assert not torch.equal(*rounded)
    torch.testing.assert_close(*rounded, rtol=0, atol=0.05 * float(rounded[0].std()))


def test_other_layers_keep_their_code(tmp_path: Path) -> None:
    # LayerNorm, and a rotation of a part of the features.
    make_checkpoint(tmp_path, family="gpt_neox")
    plain, ours = (AutoModelForCausalLM.from_pretrained(tmp_path / "source", dtype=torch.float32) for _ in range(2))
    fuse_elementwise(ours)
    assert not any("forward" in layer.__dict__ for layer in ours.modules() if "Norm" in type(layer).__name__)
    ids = torch.arange(3, 20)[None]
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16), torch.compiler.set_stance("force_eager"):
        assert torch.equal(plain(ids).logits, ours(ids).logits)


def test_a_cpu_computes_as_before_by_default(anchor: Checkpoint) -> None:
    assert choose_elementwise("auto", dtype=torch.bfloat16, device=CPU) == {"elementwise": "plain"}
    assert choose_elementwise("fused", dtype=torch.float32, device=CPU) == {"elementwise": "plain"}
    assert trainer(anchor, dtype="bfloat16").facts()["elementwise"] == "plain"


@pytest.mark.parametrize("recomputation", [False, True, 24])
def test_log_probabilities_and_gradients_are_no_farther_from_fp64(
    anchor: Checkpoint, recomputation: bool | int
) -> None:
    distances = {}
    exact: tuple[Tensor, Tensor] | None = None
    for setting, dtype in (("plain", "float64"), ("plain", "bfloat16"), ("fused", "bfloat16")):
        with torch.compiler.set_stance("force_eager"):
            engine = trainer(
                anchor, dtype=dtype, elementwise=setting, gradient_checkpointing=recomputation, token_budget=64
            )
            assert engine.facts()["elementwise"] == setting
            slope = gradient(engine, GROUPS).double().clone()
            rows = engine.logprobs(GROUPS, temperature=1.0)
        values = torch.tensor([value for group in rows for row in group for value in row], dtype=torch.float64)
        if exact is None:
            exact = values, slope
        distances[setting] = [float((a - b).norm() / b.norm()) for a, b in zip((values, slope), exact, strict=True)]
    assert 0 < distances["fused"][0] < 1.1 * distances["plain"][0], distances
    assert 0 < distances["fused"][1] < 1.1 * distances["plain"][1], distances


@pytest.mark.slow
def test_compiled_kernels_compute_what_the_functions_do(anchor: Checkpoint) -> None:
    gradients = []
    for stance in ("force_eager", "default"):
        with torch.compiler.set_stance(stance):
            engine = trainer(anchor, dtype="bfloat16", elementwise="fused", gradient_checkpointing=24, token_budget=64)
            gradients.append(gradient(engine, GROUPS).clone())
    torch.testing.assert_close(*gradients, rtol=0, atol=0.02 * float(gradients[0].abs().max()))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] < 30
