"""Settings of the baselines that cannot run are refused before anything does."""

from typing import Any

import pytest
from places import CONFIGS

from infuser_core.config.overlays import load, merge, validate
from infuser_core.errors import ConfigError

NANO = load([CONFIGS / "nano.yaml"]).model_dump(mode="json")
STRONG = {"type": "nano", "world": "hard"}


@pytest.mark.parametrize(
    ("cotrain", "said"),
    [
        ({"generator": {"model": STRONG}}, "set generator.update to false"),
        ({"solver": {"accuracy_band": [0.7, 0.3]}}, "0 <= low <= high <= 1"),
        ({"solver": {"accuracy_band": [0.5]}}, "accuracy_band"),
        ({"labels": "nobody"}, "labels"),
        ({"examples": {"count": 0}}, "count"),
        (
            {"examples": {"count": 2, "earlier": 9, "source": {"type": "nano", "split": "train", "size": 2}}},
            "leave out",
        ),
        ({"turns": {"generator": 2, "solver": 2}, "generator": {"update": False}}, "two roles"),
        ({"aims": [0.5, 1.0]}, "below 1"),
        ({"solver": {"accuracy_quantiles": [0.7, 0.3]}}, "low < high"),
        ({"solver": {"accuracy_quantiles": [0.3, 0.7], "accuracy_band": [0.3, 0.7]}}, "two bands"),
    ],
)
def test_what_cannot_run_is_refused_with_its_reason(cotrain: dict[str, Any], said: str):
    with pytest.raises(ConfigError, match=said):
        validate(merge(NANO, {"cotrain": cotrain}))


def test_a_frozen_generator_may_be_any_model():
    server = {"type": "endpoint", "model": "big", "url": "http://127.0.0.1:8000/v1"}
    for model in (STRONG, server):
        config = validate(merge(NANO, {"cotrain": {"generator": {"update": False, "model": model}}}))
        assert config.cotrain.generator.model is not None


def test_the_band_is_a_pair():
    config = validate(merge(NANO, {"cotrain": {"solver": {"accuracy_band": [0.25, 0.75]}}}))
    assert config.cotrain.solver.band() == (0.25, 0.75)
    assert validate(NANO).cotrain.solver.band() is None
