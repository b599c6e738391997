from typing import Any

import pytest
import torch

from infuser_core.algorithm.influence import RUN, Elementwise, direction, inner, partial_sums
from infuser_core.algorithm.score import norm, score

MODES = ("preconditioned_cosine", "cosine", "preconditioned_dot", "dot")


def form(*, step: int, beta2: float, eps: float) -> Elementwise:
    return Elementwise.of_adamw(step=step, beta2=beta2, eps=eps)


def scored(mode: str, g: list[float], ref: list[float], *, v: list[float] | None = None, **constants: Any):
    gradient, reference = torch.tensor(g), torch.tensor(ref)
    gamma = direction(gradient, torch.zeros(len(g)) if v is None else torch.tensor(v), form(**constants))
    dot, raw, direction_sq, gradient_sq = partial_sums(gradient, reference, gamma).tolist()
    return score(
        mode,
        dot=dot,
        raw_dot=raw,
        direction_norm=norm(direction_sq),
        gradient_norm=norm(gradient_sq),
        reference_norm=float(reference.norm()),
    ), (norm(direction_sq), norm(gradient_sq))


def test_warm_state() -> None:
    g, v = torch.tensor([2.0, -4.0]), torch.tensor([4.0, 9.0])
    gamma = direction(g, v, form(step=6, beta2=0.9, eps=0.2))
    assert gamma.tolist() == pytest.approx([0.673634, -0.886534], abs=1e-6)
    assert (g.tolist(), v.tolist()) == ([2, -4], [4, 9])
    arguments = {"g": [2.0, -4.0], "ref": [3.0, 5.0], "v": [4.0, 9.0], "step": 6, "beta2": 0.9, "eps": 0.2}
    dot, norms = scored("preconditioned_dot", **arguments)
    assert (dot, *norms) == pytest.approx((-2.411766, 1.113429, 4.472136), abs=1e-6)
    assert scored("preconditioned_cosine", **arguments)[0] == pytest.approx(-0.371478, abs=1e-6)


def test_cold_state() -> None:
    arguments = {"g": [2.0, -3.0, 0.5], "ref": [1.5, -0.5, 2.0], "step": 0, "beta2": 0.95, "eps": 0.1}
    gamma = direction(torch.tensor(arguments["g"]), torch.zeros(3), form(step=0, beta2=0.95, eps=0.1))
    assert gamma.tolist() == pytest.approx([0.952381, -0.967742, 0.833333], abs=1e-6)
    dot, norms = scored("preconditioned_dot", **arguments)
    assert (dot, *norms) == pytest.approx((3.579109, 1.593110, 3.640055), abs=1e-6)
    assert scored("preconditioned_cosine", **arguments)[0] == pytest.approx(0.881196, abs=1e-6)


def test_cold_cosine() -> None:
    arguments = {"g": [2.0, -1.0], "ref": [1.0, 3.0], "step": 0, "beta2": 0.999, "eps": 0.05}
    assert scored("preconditioned_dot", **arguments)[0] == pytest.approx(-1.881533, abs=1e-6)
    value, norms = scored("preconditioned_cosine", **arguments)
    assert (value, norms[0]) == pytest.approx((-0.436406, 1.363394), abs=1e-6)


@pytest.mark.parametrize(
    ("mode", "g", "ref", "expected"),
    [
        ("cosine", [3.0, 4.0], [4.0, 3.0], 0.96),
        ("dot", [3.0, 4.0], [4.0, 3.0], 24.0),
        ("dot", [1.0, 2.0], [2.0, 1.0], 4.0),
        ("cosine", [1.0, 2.0], [2.0, 1.0], 0.8),
    ],
)
def test_raw_modes(mode: str, g: list[float], ref: list[float], expected: float) -> None:
    assert scored(mode, g, ref, step=0, beta2=0.9, eps=0.1)[0] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("mode", MODES)
def test_a_zero_gradient_scores_zero(mode: str) -> None:
    assert scored(mode, [0.0, 0.0], [1.0, 2.0], step=0, beta2=0.9, eps=1e-8)[0] == 0.0


def test_pieces_add_up() -> None:
    torch.manual_seed(0)
    g, ref, v = torch.randn(10).double(), torch.randn(10).double(), torch.rand(10).double()
    gamma = direction(g, v, form(step=3, beta2=0.99, eps=1e-8))
    whole = partial_sums(g, ref, gamma)
    pieces = sum(partial_sums(g[cut], ref[cut], gamma[cut]) for cut in (slice(0, 4), slice(4, 10)))
    assert whole.tolist() == pytest.approx(pieces.tolist(), rel=1e-12)


@pytest.mark.parametrize("length", [0, 1, RUN, 3 * RUN + 7])
def test_a_long_sum_keeps_the_digits_of_fp32(length: int) -> None:
    torch.manual_seed(0)
    left, right = torch.rand(length), torch.rand(length)
    assert float(inner(left, right)) == pytest.approx(float(left.double() @ right.double()), rel=1e-5)


def test_direction_is_the_step_of_adamw_without_first_moment_and_decay() -> None:
    torch.manual_seed(1)
    start = torch.randn(7, dtype=torch.float64)
    weight = torch.nn.Parameter(start.clone())
    optimizer = torch.optim.AdamW([weight], lr=0.1, betas=(0.0, 0.999), eps=1e-8, weight_decay=0.0)
    for _ in range(3):
        weight.grad = torch.randn(7, dtype=torch.float64)
        optimizer.step()
    before, moment = weight.detach().clone(), optimizer.state[weight]["exp_avg_sq"].clone()
    weight.grad = torch.randn(7, dtype=torch.float64)
    expected = direction(weight.grad, moment, form(step=3, beta2=0.999, eps=1e-8))
    optimizer.step()
    assert ((before - weight.detach()) / 0.1).tolist() == pytest.approx(expected.tolist(), rel=1e-9)
