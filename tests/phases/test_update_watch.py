"""Settings and numbers of an update: step sizes over iterations, responses cut at the limit, limits with warnings."""

from dataclasses import replace

import pytest
from engine_tiny import objective_settings
from test_influence_study import rollouts

from infuser_core.config.roles import SolverRole
from infuser_core.cotrain.phases.parts.health import LIMITS, health_warnings
from infuser_core.schemas import Update


def sizes(**settings: object) -> list[float]:
    role = SolverRole(learning_rate=1.0, advantage="mean_centred", **settings)  # type: ignore[arg-type]
    return [role.step_size(iteration, iterations=6) for iteration in range(6)]


def test_step_sizes_rise_and_fall_over_iterations() -> None:
    assert sizes() == [1.0] * 6
    assert sizes(warmup=4) == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    assert sizes(warmup=2, schedule="linear") == [0.5, 1.0, 1.0, 0.75, 0.5, 0.25]
    assert sizes(schedule="cosine") == pytest.approx([1.0, 0.933013, 0.75, 0.5, 0.25, 0.066987], abs=1e-6)


def test_a_response_cut_at_the_limit_has_no_credit_where_those_are_masked() -> None:
    rows = rollouts("q", seed=0)[:4]
    rows[1] = replace(rows[1], finish_reason="length")
    credit = [-0.5, 0.5, -0.5, 0.5]
    assert objective_settings().mask_overlong(rows, credit) == credit
    assert objective_settings(overlong="mask").mask_overlong(rows, credit) == [-0.5, 0.0, -0.5, 0.5]


SOUND = Update(
    role="solver", step=1, num_groups=4, num_tokens=90, loss=0.1, gradient_norm=0.3, learning_rate=1e-3,
    clip_fraction=0.01, clip_fraction_high=0.0, mean_ratio=1.0, mean_tis=1.0, truncated=0.0, sampler_kl=1e-6,
    policy_kl=1e-4, anchor_kl=0.0, entropy=0.4, cut=0, skipped=False, num_responses=16, flat_share=0.2,
    below_epsilon=0.0,
)  # fmt: skip


def test_each_limit_warns_of_its_largest_value_with_the_setting_to_turn() -> None:
    assert health_warnings("solver", [SOUND]) == health_warnings("solver", []) == []
    for field, value in (
        ("sampler_kl", 0.2),
        ("truncated", 0.5),
        ("clip_fraction", 0.6),
        ("policy_kl", 0.75),
        ("flat_share", 0.95),
    ):
        (line,) = health_warnings("solver", [SOUND, replace(SOUND, **{field: value}), SOUND])
        assert f"is {value:.3g}, above" in line and line.startswith("solver: ")
    (line,) = health_warnings("solver", [SOUND, replace(SOUND, cut=8)])
    assert "share of responses cut at the limit is 0.5, above 0.3" in line
    assert all(
        "engine." in limit.remedy or "learning_rate" in limit.remedy or "cotrain." in limit.remedy for limit in LIMITS
    )


def test_a_collapsed_entropy_warns_but_not_that_of_a_step_without_tokens() -> None:
    (line,) = health_warnings("solver", [SOUND, replace(SOUND, entropy=0.002)])
    assert line.startswith("solver: entropy per token is 0.002, below 0.01") and "learning_rate" in line
    assert health_warnings("solver", [replace(SOUND, entropy=0.0, num_tokens=0)]) == []
