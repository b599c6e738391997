"""What a budget's settings may be, and which stages they change."""

from pathlib import Path
from typing import Any

import pytest
from everything_stored import base_of, changed, recipes, walked

from infuser_core.config.overlays import merge, validate
from infuser_core.errors import ConfigError
from infuser_core.planning.preflight import preflight


def base(world: Path, budget: dict[str, Any], **cotrain: Any) -> dict[str, Any]:
    return merge(base_of(world), {"cotrain": {"budget": budget, **cotrain}})


@pytest.mark.parametrize(
    ("budget", "cotrain", "said"),
    [
        ({"shares": {"a": 1.0}}, {}, "budget.mode is uniform"),
        ({"mode": "shares"}, {}, "needs budget.shares"),
        ({"mode": "shares", "shares": {"a": -1.0, "b": 2.0}}, {}, "negative"),
        ({"mode": "bandit", "shares": {"a": 1.0}}, {}, "leave the bandit something"),
        ({"mode": "bandit"}, {"frozen_batch": True}, "frozen_batch false"),
        ({"mode": "bandit"}, {"generator": {"update": False}}, "generator.update true"),
    ],
)
def test_impossible_budgets_are_refused(world: Path, budget: dict[str, Any], cotrain: dict[str, Any], said: str):
    with pytest.raises(ConfigError, match=said):
        validate(base(world, budget, **cotrain))


def test_a_bandit_without_influence_is_refused_before_the_run(world: Path):
    with pytest.raises(ConfigError, match="learnability measures no influence"):
        preflight(validate(base(world, {"mode": "bandit"}, reward={"name": "learnability"})))


@pytest.mark.parametrize("leaf", [{"exploration": 1.5}, {"floor": 0.1}, {"by": "source_id"}, {"shares": {"": 0.5}}])
def test_the_bandits_settings_change_its_stage_alone(world: Path, leaf: dict[str, Any]):
    one, other = (recipes(validate(base(world, {"mode": "bandit", **each})), world, fixed=True) for each in ({}, leaf))
    assert changed(one, other) == ["allocate"]


def test_a_longer_window_changes_the_iterations_that_look_further_back(world: Path):
    def inputs(window: int) -> list[set[str]]:
        store = walked(validate(base(world, {"mode": "bandit", "window": window})), world, fixed=False, iterations=3)
        return [set(recipe.inputs) for recipe in store.recipes if recipe.phase == "allocate"]

    short, long = inputs(1), inputs(5)
    assert short[:2] == long[:2]
    assert long[2] - short[2] == {"allocation2", "questions2", "scores2"}
