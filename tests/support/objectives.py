"""Constants of a loss by the settings' defaults."""

from typing import Any

from infuser_core.algorithm.preset import PRESETS, Objective
from infuser_core.config.loss import LossSettings
from infuser_core.config.run import RolloutSampling


def objective(**changes: Any) -> Objective:
    """Constants of the paper's loss at C = 1, with changes."""
    loss, preset = LossSettings(), PRESETS["paper"]
    stock = {name: getattr(loss, name) for name in ("clip_low", "clip_high", "tis_cap", "ratio", "kl", "entropy")}
    stock |= {"dual_clip": preset.dual_clip, "tis_form": preset.tis_form}
    return Objective(**stock | {"length_norm": 1.0, "temperature": RolloutSampling().temperature} | changes)
