"""Every way of computing attention over packed segments is the same attention."""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from engine_tiny import gradient, make_groups, trainer
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from infuser_core.engines.training.attention import PackedLayout, SegmentShape
from infuser_core.engines.training.fused_attention import Copies, VarlenLayout, choose_attention, disagreement
from infuser_core.errors import EngineError
from infuser_core.schemas import Checkpoint

CPU = torch.device("cpu")
HEADS = SimpleNamespace(num_attention_heads=4, num_key_value_heads=2, head_dim=8)
SHAPES = st.lists(
    st.builds(SegmentShape, prompt=st.integers(1, 12), rows=st.lists(st.integers(1, 9), min_size=1, max_size=3)),
    min_size=1,
    max_size=3,
)


def kernel(
    query: Tensor, key: Tensor, value: Tensor, starts_q: Tensor, starts_k: Tensor, *_: int, scaling: float,
    window: int | None,
) -> Tensor:  # fmt: skip
    """The contract of a variable-length kernel, written down sequence by sequence."""
    repeats, outputs = query.shape[1] // key.shape[1], []
    bounds = [zip(each[:-1].tolist(), each[1:].tolist(), strict=True) for each in (starts_q, starts_k)]
    for (q0, q1), (k0, k1) in zip(*bounds, strict=True):
        keys, values = (each[k0:k1].repeat_interleave(repeats, 1).transpose(0, 1) for each in (key, value))
        scores = (query[q0:q1].transpose(0, 1) @ keys.transpose(1, 2)) * scaling
        ages = torch.arange(k1 - k0 - (q1 - q0), k1 - k0)[:, None] - torch.arange(k1 - k0)
        hidden = (ages < 0) | (ages >= (window or len(ages[0])))
        outputs.append((scores.masked_fill(hidden, float("-inf")).softmax(-1) @ values).transpose(0, 1))
    return torch.cat(outputs)


@given(shapes=SHAPES, window=st.sampled_from([None, 4]))
@settings(max_examples=25, deadline=None)
def test_the_fused_layout_attends_as_the_padded_layout_does(shapes: list[SegmentShape], window: int | None) -> None:
    total = sum(shape.prompt + sum(shape.rows) for shape in shapes)
    draw = torch.Generator().manual_seed(total)
    query, key, value = (torch.randn(1, heads, total, 8, generator=draw, dtype=torch.float64) for heads in (4, 2, 2))
    with torch.no_grad():
        plain, fused = (
            make(shapes, device=CPU).attend(0, query, key, value, scaling=0.3, window=window).reshape(total, -1)
            for make in (PackedLayout, partial(VarlenLayout, kernel=kernel))
        )
    torch.testing.assert_close(fused, plain)


@given(
    counts=st.lists(st.integers(1, 9), min_size=1, max_size=12),
    dtype=st.sampled_from([torch.bfloat16, torch.float32, torch.float64]),
    seed=st.integers(0, 99),
)
@settings(max_examples=40, deadline=None)
def test_the_gradient_of_repeated_keys_is_their_sum_rounded_once(counts: list[int], dtype: torch.dtype, seed: int):
    tokens = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))
    draw = torch.Generator().manual_seed(seed)
    flat = torch.randn(len(counts), 2, 3, generator=draw).to(dtype).requires_grad_()
    slopes = torch.randn(len(tokens), 2, 3, generator=draw).to(dtype)
    gathered = Copies(tokens, CPU).gather(flat)
    assert torch.equal(gathered, flat[torch.from_numpy(tokens)])
    gathered.backward(slopes)
    exact = torch.zeros(len(counts), 2, 3, dtype=torch.float64)
    exact.index_add_(0, torch.from_numpy(tokens), slopes.double())
    # One rounding to the dtype, and sums in fp32 or fp64; sums in bf16 err by several times as much.
    room = 4 * torch.finfo(torch.promote_types(dtype, torch.float32)).eps * max(counts)
    torch.testing.assert_close(flat.grad.double(), exact, rtol=0.51 * torch.finfo(dtype).eps, atol=room)


def test_gradients_agree_and_a_kernel_aligned_at_the_beginning_is_found_out() -> None:
    def aligned_at_the_beginning(query, key, value, starts_q, starts_k, *lengths, **options):  # type: ignore[no-untyped-def]
        return kernel(query, key, value, starts_q, starts_q, *lengths, **options)

    errors = [
        disagreement(partial(VarlenLayout, kernel=each), HEADS, torch.float64, CPU)
        for each in (kernel, aligned_at_the_beginning)
    ]
    assert errors[0] < 1e-12 and errors[1] > 0.1


def test_a_cpu_takes_the_plain_one_and_says_why_another_cannot_be_had(anchor: Checkpoint) -> None:
    assert choose_attention("auto", HEADS, dtype=torch.float32, device=CPU)[1] == {"attention": "sdpa"}
    with pytest.raises(EngineError, match=r"engine\.attention flash cannot be used on cpu: .+") as caught:
        choose_attention("flash", HEADS, dtype=torch.float32, device=CPU)
    assert caught.value.hint
    engine = trainer(anchor, dtype="bfloat16", token_budget=512)
    gradient(engine, make_groups([(5, [4, 7, 1])]))
    facts = engine.facts()
    assert (facts["attention"], facts["dtype"], facts["token_budget"]) == ("sdpa", "bfloat16", 512)
    assert facts["device"]


@pytest.mark.parametrize("window", [None, 7])
def test_a_long_response_attends_in_parts_as_in_one_call(monkeypatch: pytest.MonkeyPatch, window: int | None) -> None:
    shapes = [SegmentShape(prompt=3, rows=[11, 4]), SegmentShape(prompt=5, rows=[10, 9])]
    inputs = [torch.randn(1, heads, 42, 8, dtype=torch.float64, requires_grad=True) for heads in (4, 2, 2)]
    found = []
    for queries in (100, 4, 1):
        monkeypatch.setattr("infuser_core.engines.training.attention.QUERIES", queries)
        output = PackedLayout(shapes, device=CPU).attend(0, *inputs, scaling=0.3, window=window)
        found.append([output, *torch.autograd.grad(output.square().sum(), inputs)])
    for parts in found[1:]:
        torch.testing.assert_close(parts, found[0])
