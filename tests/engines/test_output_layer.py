"""The output layer's one function is torch's cross entropy, whole or in tiles, with gradients of everything."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from infuser_core.engines.training.output_layer import OutputLayer, Tiles

LIMITS = {torch.float32: 1e-5, torch.float64: 1e-12}


def made(tokens: int, words: int, *, dtype: torch.dtype, bias: bool) -> tuple[nn.Linear, Tensor, Tensor, Tensor]:
    """A layer, hidden states, targets at both ends of the vocabulary, and slopes."""
    torch.manual_seed(tokens * words)
    layer = nn.Linear(6, words, bias=bias, dtype=dtype)
    targets = torch.randint(0, words, (tokens,))
    targets[0], targets[-1] = 0, words - 1
    return layer, torch.randn(tokens, 6, dtype=dtype), targets, torch.randn(tokens, dtype=dtype)


def everything(found: Tensor, hidden: Tensor, layer: nn.Linear, slopes: Tensor) -> list[Tensor]:
    """Log-probabilities and the gradients of states, weight and bias."""
    return [found.detach(), *torch.autograd.grad(found, [hidden, *layer.parameters()], slopes)]


def plainly(layer: nn.Linear, hidden: Tensor, targets: Tensor, temperature: float) -> Tensor:
    return -F.cross_entropy(layer(hidden) / temperature, targets, reduction="none")


@pytest.mark.parametrize("words", [13, 1 << 17])
def test_kept_logits_give_the_bits_of_cross_entropy(words: int) -> None:
    layer, hidden, targets, slopes = made(19, words, dtype=torch.float32, bias=False)
    hidden.requires_grad_()
    expected = everything(plainly(layer, hidden, targets, 0.7), hidden, layer, slopes)
    output = OutputLayer.of(layer, torch.float32, torch.device("cpu"))
    found = everything(output.logprobs(hidden, targets, 0.7), hidden, layer, slopes)
    assert [torch.equal(one, other) for one, other in zip(found, expected, strict=True)] == [True] * 3


@settings(max_examples=25, deadline=None)
@given(
    tokens=st.integers(1, 150),
    words=st.integers(2, 200),
    cells=st.integers(1, 20_000),
    rows=st.none() | st.integers(1, 160),
    bias=st.booleans(),
    dtype=st.sampled_from(list(LIMITS)),
)
def test_tiles_of_any_size_give_the_same(
    tokens: int, words: int, cells: int, rows: int | None, bias: bool, dtype: torch.dtype
) -> None:
    layer, hidden, targets, slopes = made(tokens, words, dtype=dtype, bias=bias)
    hidden.requires_grad_()
    expected = everything(plainly(layer, hidden, targets, 0.7), hidden, layer, slopes)
    output = OutputLayer(layer=layer, compute_dtype=dtype, cells=cells, kept_cells=0, rows=rows)
    found = everything(output.logprobs(hidden, targets, 0.7), hidden, layer, slopes)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=LIMITS[dtype], atol=LIMITS[dtype])


class Rewritten(TorchDispatchMode):
    """Counts the bytes of [tokens, 6] and [words, 6] matrices that products and sums write."""

    bytes = 0

    def __torch_dispatch__(self, function, types, arguments=(), options=None):  # type: ignore[no-untyped-def]
        result = function(*arguments, **options or {})
        name = str(function).split(".")[1]
        if name in ("mm", "add_", "copy_") and result.dim() == 2 and result.shape[1] == 6:
            self.bytes += result.nbytes
        return result


def test_square_tiles_rewrite_bytes_linear_in_the_tokens() -> None:
    ratios = {}
    for rows in (None, 256):
        written = []
        for tokens in (256, 1024):
            layer, hidden, targets, slopes = made(tokens, 2048, dtype=torch.float32, bias=False)
            output = OutputLayer(layer=layer, compute_dtype=torch.float32, cells=256**2, kept_cells=0, rows=rows)
            logprobs = output.logprobs(hidden.requires_grad_(), targets, 1.0)
            with Rewritten() as counter:
                logprobs.backward(slopes)
            written.append(counter.bytes)
        ratios[rows] = written[1] / written[0]
    assert ratios[256] < 7 and ratios[None] > 10, ratios


@pytest.mark.parametrize("kept_cells", [0, 1 << 20])
def test_bf16_products_have_gradients_in_the_weights_own_dtype(kept_cells: int) -> None:
    layer, hidden, targets, slopes = made(40, 300, dtype=torch.float32, bias=True)
    hidden.requires_grad_()
    exact = everything(plainly(layer, hidden, targets, 0.7), hidden, layer, slopes)
    output = OutputLayer(layer=layer, compute_dtype=torch.bfloat16, cells=4096, kept_cells=kept_cells)
    found = everything(output.logprobs(hidden, targets, 0.7), hidden, layer, slopes)
    assert {each.dtype for each in found} == {torch.float32}
    for one, other in zip(found, exact, strict=True):
        assert F.cosine_similarity(one.flatten(), other.flatten(), dim=0) > 0.999


@pytest.mark.parametrize("kept_cells", [0, 1 << 20])
def test_a_frozen_weight_gets_no_gradient(kept_cells: int) -> None:
    layer, hidden, targets, slopes = made(5, 11, dtype=torch.float64, bias=False)
    hidden.requires_grad_()
    expected = torch.autograd.grad(plainly(layer, hidden, targets, 1.0), hidden, slopes)
    layer.requires_grad_(False)
    output = OutputLayer(layer=layer, compute_dtype=torch.float64, cells=16, kept_cells=kept_cells)
    output.logprobs(hidden, targets, 1.0).backward(slopes)
    torch.testing.assert_close(hidden.grad, expected[0])
    assert layer.weight.grad is None


@settings(max_examples=25, deadline=None)
@given(tokens=st.integers(1, 150), words=st.integers(2, 200), cells=st.integers(1, 20_000), kept=st.booleans())
def test_entropies_and_their_gradients_are_those_of_torch(tokens: int, words: int, cells: int, kept: bool) -> None:
    layer, hidden, targets, slopes = made(tokens, words, dtype=torch.float64, bias=True)
    hidden.requires_grad_()
    others = torch.randn_like(slopes)
    logprobs = torch.log_softmax(layer(hidden) / 0.7, 1)
    plain = (logprobs.gather(1, targets[:, None])[:, 0], torch.distributions.Categorical(logits=logprobs).entropy())
    output = OutputLayer(layer=layer, compute_dtype=torch.float64, cells=cells, kept_cells=tokens * words * kept)
    found = output.with_entropy(hidden, targets, 0.7)
    wanted = [hidden, *layer.parameters()]
    for one, other in zip(found, plain, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-11)
    pairs = zip(*(torch.autograd.grad(each, wanted, (slopes, others)) for each in (found, plain)), strict=True)
    for one, other in pairs:
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-11)
    assert torch.equal(found[0], output.logprobs(hidden, targets, 0.7))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("biased", [True, False])
def test_tiles_of_logits_share_memory(dtype: torch.dtype, biased: bool) -> None:
    tiles = Tiles(0.5, like=torch.zeros(1))
    hidden, weight = torch.randn(5, 8).to(dtype), torch.randn(64, 8).to(dtype)
    bias = torch.randn(64) if biased else None
    expected = nn.functional.linear(hidden.float(), weight.float(), bias) / 0.5
    places = set()
    for start, stop in ((0, 30), (30, 60), (60, 64)):
        found = tiles.logits(hidden, weight[start:stop], None if bias is None else bias[start:stop])
        assert found.dtype == torch.float32
        torch.testing.assert_close(found, expected[:, start:stop])
        places.add(found.data_ptr())
    assert len(places) == 1


@pytest.mark.parametrize("tokens", [3, 230])
def test_bf16_products_have_fp32_logits_at_a_large_vocabulary(tokens: int) -> None:
    torch.manual_seed(0)
    layer = nn.Linear(64, 151_936, bias=False)
    hidden, targets = 2 * torch.randn(tokens, 64), torch.randint(151_936, (tokens,))
    with torch.no_grad():
        logprobs = OutputLayer.of(layer, torch.bfloat16, torch.device("cpu")).logprobs(hidden, targets, 1.0)
        exact = hidden.bfloat16().double() @ layer.weight.bfloat16().double().t()
        expected = torch.log_softmax(exact, -1).gather(1, targets[:, None])[:, 0]
    # Logits that are rounded to bf16 move these by up to 7e-3.
    torch.testing.assert_close(logprobs.double(), expected, rtol=0, atol=2e-5)
