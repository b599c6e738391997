"""Entry of `infuser rehearse`: a scratch folder, the planner's forecast, all steps, and the table."""

import tempfile
from pathlib import Path

from infuser_core import settings
from infuser_core.capacity.asked import Asked
from infuser_core.config.run import RunConfig
from infuser_core.errors import ConfigError
from tasks.rehearsal.steps import Rehearsal
from tasks.rehearsal.table import Forecast, Line


def forecast_of(config: RunConfig, gpus: str) -> Forecast | None:
    """The planner's answer for `gpus`; None where nobody names any, or the anchor's shape cannot be had.

    A missing anchor is the first step's to tell of.
    """
    if not gpus:
        return None
    try:
        asked = Asked.of(config, gpus)
    except ConfigError:
        return None
    return Forecast.of(asked)


def rehearse(config: RunConfig, gpus: str) -> tuple[list[Line], Forecast | None]:
    """Rehearse a configuration beside the store, where its checkpoints will lie; removes the folder."""
    forecast = forecast_of(config, gpus)
    root = settings.writable_store_root()
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="rehearsal-", dir=root) as folder:
        return Rehearsal(config, Path(folder), forecast).run(), forecast
