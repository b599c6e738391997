import math

import pytest
import torch
from objectives import objective
from torch import Tensor

from infuser_core.algorithm.objective import clipped_objective, truncated_weight


def tensors(*values: list[float]) -> list[Tensor]:
    return [torch.tensor(each, dtype=torch.float64) for each in values]


def test_by_hand() -> None:
    # ratios 1.5 (A > 0: clipped to 1.2), 0.5 (A > 0: plain), 0.5 (A < 0: clipped to 0.8), 1.5 (A < 0: plain)
    old, sampler, advantages = tensors([-1.0] * 4, [-1.0] * 4, [1.0, 1.0, -2.0, -2.0])
    current = (old + torch.tensor([1.5, 0.5, 0.5, 1.5], dtype=torch.float64).log()).requires_grad_()
    terms = clipped_objective(
        current,
        advantages_S=advantages,
        weights_S=torch.full_like(old, 0.25),
        sampler_logprobs_S=sampler,
        old_logprobs_S=old,
        objective=objective(),
    )
    assert terms.loss.item() == pytest.approx(0.25 * (-1.2 - 0.5 + 1.6 + 3.0))
    assert (
        *(terms.sums[name].item() for name in ("clip_fraction", "mean_ratio", "mean_tis")),
        terms.tokens,
    ) == pytest.approx((2, 4, 4, 4))
    (gradient,) = torch.autograd.grad(terms.loss, current)
    assert gradient.tolist() == pytest.approx([0, -0.125, 0, 0.75])


def test_dual_clip_bounds_negative_advantages_only() -> None:
    old, advantages = tensors([-5.0, -5.0], [-1.0, 1.0])
    terms = clipped_objective(
        old + math.log(10),
        advantages_S=advantages,
        weights_S=torch.ones_like(old),
        sampler_logprobs_S=old,
        old_logprobs_S=old,
        objective=objective(dual_clip=3.0),
    )
    assert terms.loss.item() == pytest.approx(3.0 - 1.2)


def test_without_old_the_ratio_is_one_and_the_gradient_is_full() -> None:
    current, advantages, sampler = tensors([-1.0, -3.0], [2.0, -1.0], [-1.0, -2.0])
    current.requires_grad_()
    terms = clipped_objective(
        current,
        advantages_S=advantages,
        weights_S=torch.ones(2),
        sampler_logprobs_S=sampler,
        objective=objective(tis_cap=2.0),
    )
    (gradient,) = torch.autograd.grad(terms.loss, current)
    assert terms.sums["mean_ratio"].item() == 2.0
    assert gradient.tolist() == pytest.approx([-2.0, math.exp(-1.0)])


def test_importance_weights_are_capped_clamped_and_optional() -> None:
    old, sampler = tensors([-1.0, -1.0, -1.0], [-1.5, -9.0, -400.0])
    assert truncated_weight(old, sampler, cap=2.0).tolist() == pytest.approx([math.exp(0.5), 2.0, 2.0])
    assert truncated_weight(sampler, old, cap=2.0)[2].item() == pytest.approx(math.exp(-20))
    assert truncated_weight(old, sampler, cap=None).tolist() == [1, 1, 1]


def test_sequence_ratios_are_geometric_means_of_a_response() -> None:
    draw = torch.Generator().manual_seed(0)
    current, old, sampler = (-torch.rand(7, generator=draw, dtype=torch.float64) for _ in range(3))
    current.requires_grad_()
    rows = [[0, 1, 2], [3, 4, 5, 6]]
    credit = torch.tensor([1.0] * 3 + [-0.5] * 4, dtype=torch.float64)
    terms = clipped_objective(
        current, advantages_S=credit, weights_S=torch.full((7,), 0.25, dtype=torch.float64),
        sampler_logprobs_S=sampler, old_logprobs_S=old, rows_S=torch.tensor([0, 0, 0, 1, 1, 1, 1]),
        objective=objective(clip_low=0.05, clip_high=0.1, ratio="sequence"),
    )  # fmt: skip
    plain = torch.zeros((), dtype=torch.float64)
    for places in rows:
        ratio = torch.prod((current[places] - old[places]).exp()) ** (1 / len(places))
        advantage = credit[places[0]]
        bounded = torch.minimum(ratio * advantage, ratio.clamp(0.95, 1.1) * advantage)
        plain = plain - 0.25 * ((old[places] - sampler[places]).exp().clamp(max=2.0) * bounded).sum()
    assert terms.loss.item() == pytest.approx(plain.item(), rel=1e-12)
    slopes = [torch.autograd.grad(loss, current, retain_graph=True)[0] for loss in (terms.loss, plain)]
    torch.testing.assert_close(*slopes, rtol=1e-12, atol=1e-12)


def test_sums_that_an_update_is_watched_by() -> None:
    current, old, sampler = (torch.tensor(each).log() for each in ([0.9, 0.2, 0.5], [0.5, 0.5, 0.5], [0.1, 0.5, 0.8]))
    terms = clipped_objective(
        current, advantages_S=torch.tensor([1.0, -1.0, 1.0]), weights_S=torch.ones(3), sampler_logprobs_S=sampler,
        old_logprobs_S=old, objective=objective(),
    )  # fmt: skip
    ratios, weights = [1.8, 0.4, 1.0], [5.0, 1.0, 0.625]
    assert {name: float(value) for name, value in terms.sums.items()} == pytest.approx(
        {
            "clip_fraction": 2, "clip_fraction_high": 1, "mean_ratio": 3.2, "mean_tis": 3.625, "truncated": 1,
            "sampler_kl": sum(weight - 1 - math.log(weight) for weight in weights),
            "policy_kl": sum(ratio - 1 - math.log(ratio) for ratio in ratios),
            "anchor_kl": 0,
            "entropy": -math.log(0.9 * 0.2 * 0.5),
        },
        rel=1e-5,
    )  # fmt: skip


def test_the_distance_to_the_anchor_is_grpos_and_is_seen() -> None:
    draw = torch.Generator().manual_seed(1)
    current, anchor, sampler = (-3 * torch.rand(6, generator=draw, dtype=torch.float64) for _ in range(3))
    current.requires_grad_()
    credit, weights = torch.randn(2, 6, generator=draw, dtype=torch.float64).unbind(0)
    given = {"advantages_S": credit, "weights_S": weights.abs(), "sampler_logprobs_S": sampler}
    found = clipped_objective(current, anchor_logprobs_S=anchor, objective=objective(kl=0.3), **given)
    bare = clipped_objective(current, objective=objective(), **given)
    ratio = (anchor - current).exp()
    k3 = ratio - (anchor - current) - 1
    plain = bare.loss + 0.3 * (weights.abs() * k3).sum()
    assert found.loss.item() == pytest.approx(plain.item(), rel=1e-12)
    assert found.sums["anchor_kl"].item() == pytest.approx(k3.sum().item(), rel=1e-12)
    slopes = [torch.autograd.grad(loss, current, retain_graph=True)[0] for loss in (found.loss, plain)]
    torch.testing.assert_close(*slopes, rtol=1e-12, atol=1e-12)
    # An expectation of k3 under the current policy is the divergence itself.
    p, q = (torch.rand(9, generator=draw, dtype=torch.float64).softmax(0) for _ in range(2))
    assert ((p * (q / p - 1 - (q / p).log())).sum()).item() == pytest.approx((p * (p / q).log()).sum().item())
