"""Every row of the table in preset.py, by its effect."""

from dataclasses import fields, replace

import pytest
import torch
from objectives import objective

from infuser_core.algorithm import preset
from infuser_core.algorithm.advantage import EPSILON, advantages, batch_sigma, group_sigma
from infuser_core.algorithm.objective import clipped_objective
from infuser_core.algorithm.preset import PRESETS, Preset, length_norm, step_denominator
from infuser_core.algorithm.score import mid_eos_shaped

PAPER, OFFICIAL = PRESETS["paper"], PRESETS["official"]
D1, D2 = [0.0, 1.0, 2.0, 3.0], [0.0, 0.1, 0.2, 0.1]
THREE, ONE = [0.001, 0.002, 0.003], [0.004]


def options(chosen: Preset) -> dict[str, str]:
    return {"sigma_b": chosen.sigma_b, "single_row": chosen.single_row}


def test_every_option_has_a_row_with_both_values() -> None:
    for field in fields(Preset):
        (row,) = [line for line in preset.__doc__.splitlines() if line.startswith(f"| `{field.name}` ")]
        for chosen, cell in zip((PAPER, OFFICIAL), row.split("|")[2:4], strict=True):
            value = getattr(chosen, field.name)
            words = ", ".join(value) if isinstance(value, tuple) else "none" if value is None else str(value)
            assert cell.strip() == words, field.name


def test_the_paper_preset_is_the_default_everywhere() -> None:
    groups = [D1, D2, [1.0, 1.0], [3.0]]
    for name in ("mean_centred", "dugrpo", "group_std", "batch_mean_std", "batch_pooled_std"):
        assert advantages(groups, normaliser=name) == advantages(groups, normaliser=name, **options(PAPER))


def test_length_norms() -> None:
    lengths = [[length_norm([2, 4], mode=each.length_norm, max_tokens=12)] for each in (PAPER, OFFICIAL)]
    assert lengths == [[12.0], [3.0]]


def loss(chosen: Preset, *, current: float, old: float, sampler: float, advantage: float) -> float:
    one = torch.ones(1, dtype=torch.float64)
    return clipped_objective(
        current * one,
        advantages_S=advantage * one,
        weights_S=one,
        sampler_logprobs_S=sampler * one,
        old_logprobs_S=old * one,
        objective=objective(dual_clip=chosen.dual_clip, tis_form=chosen.tis_form),
    ).loss.item()


def test_dual_clip() -> None:
    values = [loss(each, current=-1.0, old=-3.0, sampler=-3.0, advantage=-1.0) for each in (PAPER, OFFICIAL)]
    assert values == pytest.approx([7.389056, 3.0])


def test_the_truncated_weight_multiplies_the_clipped_and_bounded_loss() -> None:
    # Weight min(e^0.5, 2) of old over sampler, outside of clip and dual clip; rho = e^2.
    values = [loss(each, current=-1.0, old=-3.0, sampler=-3.5, advantage=-1.0) for each in (PAPER, OFFICIAL)]
    assert values == pytest.approx([7.389056 * 1.648721, 3.0 * 1.648721])
    assert loss(PAPER, current=-1.0, old=-3.0, sampler=-3.5, advantage=1.0) == pytest.approx(-1.2 * 1.648721)


def test_the_letter_of_the_text_truncates_the_current_ratio() -> None:
    letter = replace(PAPER, tis_form="current_over_sampler")
    # current / sampler = e^2.5, capped at 2.
    assert loss(letter, current=-1.0, old=-3.0, sampler=-3.5, advantage=1.0) == pytest.approx(-1.2 * 2.0)
    same = {"current": -3.0, "old": -3.0, "sampler": -3.5, "advantage": 1.0}
    assert loss(letter, **same) == loss(PAPER, **same)


def test_the_truncated_weight_carries_no_gradient() -> None:
    current = torch.tensor([-1.0], requires_grad=True)
    old, sampler, one = torch.tensor([-1.1]), torch.tensor([-1.3]), torch.ones(1)
    terms = clipped_objective(
        current,
        advantages_S=one,
        weights_S=one,
        sampler_logprobs_S=sampler,
        old_logprobs_S=old,
        objective=objective(tis_form="current_over_sampler"),
    )
    (slope,) = torch.autograd.grad(terms.loss, current)
    assert slope.item() == pytest.approx(-float(torch.tensor(0.1).exp() * torch.tensor(0.3).exp()))


def test_flat_groups_in_sigma_b() -> None:
    groups = [D1, [5.0, 5.0, 5.0]]
    sigmas = [batch_sigma(groups, **options(each)) for each in (PAPER, OFFICIAL)]
    assert sigmas == pytest.approx([1.290994 / 2, 1.290994], abs=1e-6)
    # One flat group of two halves sigma_B in the paper's form, and nothing else.
    first = [advantages(groups, normaliser="batch_mean_std", **options(each))[0][0] for each in (PAPER, OFFICIAL)]
    assert first == pytest.approx([-1.5 / (0.645497 + EPSILON), -1.5 / (1.290994 + EPSILON)], abs=1e-5)


def test_a_single_row() -> None:
    paper, official = (advantages([THREE, ONE], normaliser="dugrpo", **options(each)) for each in (PAPER, OFFICIAL))
    assert batch_sigma([THREE, ONE], **options(OFFICIAL)) == pytest.approx(0.5005)
    assert paper[0] == pytest.approx([-0.49975, 0, 0.49975], abs=1e-5) and paper[1] == [0.0]
    assert official[0] == pytest.approx([-0.001994, 0, 0.001994], abs=1e-6)
    assert official[1] == pytest.approx([0.002666], abs=1e-6)
    assert group_sigma(ONE, single_row="unit") == 1.0
    assert advantages([ONE], normaliser="mean_centred", single_row="unit") == [[0.004]]
    assert advantages([ONE], normaliser="group_std", single_row="unit")[0] == pytest.approx([0.004], rel=1e-5)


@pytest.mark.parametrize(("name", "chosen"), [("paper", PAPER), ("official", OFFICIAL)])
def test_batch_normalisation(name: str, chosen: Preset) -> None:
    first = advantages([D1, D2], normaliser=chosen.normaliser("batch_std"), **options(chosen))[0]
    scale = {"paper": 2.18556, "official": 1.771283}[name]
    assert first == pytest.approx([-scale, -scale / 3, scale / 3, scale], abs=2e-5)


def test_standard_deviations_have_one_degree_of_freedom_less() -> None:
    assert [group_sigma(D1), group_sigma(D2)] == pytest.approx([1.290994, 0.081650], abs=1e-6)


def test_a_smaller_last_minibatch() -> None:
    sizes = [step_denominator(5, minibatch=32, mode=each.partial_minibatch) for each in (PAPER, OFFICIAL)]
    assert sizes == [5, 32]


def test_mid_eos_shaping_of_an_unverified_response() -> None:
    for verdict, expected in (("no_answer", [-0.5, -0.5]), ("unverified", [0.0, -0.5]), ("wrong", [0.0, 0.0])):
        values = [
            mid_eos_shaped(0.0, verdict, "stop", penalty=-0.5, verdicts=each.mid_eos_verdicts)
            for each in (PAPER, OFFICIAL)
        ]
        assert values == expected
