"""A setting that is gone is ignored at its value when off, and refused with advice at any other."""

from pathlib import Path

import pytest

from infuser_core.config.overlays import load, validate
from infuser_core.config.retired import RETIRED
from infuser_core.config.run import RunConfig
from infuser_core.errors import ConfigError

NANO = Path("configs/nano.yaml")


@pytest.mark.parametrize("name", RETIRED)
def test_a_retired_setting_that_is_off_changes_nothing(name: str):
    off = {None: "null", True: "true", False: "false"}.get(RETIRED[name].off, RETIRED[name].off)
    config = load([NANO], [f"{name}={off}"])
    assert config == load([NANO]) and config.digest() == load([NANO]).digest()
    values = config.model_dump(mode="json")
    assert validate(values) == RunConfig.model_validate(values) == config


@pytest.mark.parametrize("name", RETIRED)
def test_one_that_is_on_is_refused_with_advice(name: str):
    with pytest.raises(ConfigError, match="no longer a setting") as refused:
        load([NANO], [f"{name}=77"])
    assert name in refused.value.message and refused.value.hint == RETIRED[name].advice
