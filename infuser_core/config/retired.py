"""Settings that no longer exist but occur in stores and files, with the value that switched each off."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from infuser_core.errors import ConfigError, abbreviate


class Retired(NamedTuple):
    """A setting that no longer exists."""

    off: Any
    """Its value when off, which is ignored."""
    advice: str
    """Error message for other values: what became of the setting, and the remedy."""
    in_digest: bool
    """Whether a run's digest still includes it, with its value when off."""


RETIRED = {
    "cotrain.dev_mean": Retired(
        0.0, "a running mean of the dev gradients is gone: leave it out, each iteration takes its own", in_digest=True
    ),
    "cotrain.one_backward": Retired(
        False, "the backward pass shared by scores and update is gone: leave it out, each has its own", in_digest=True
    ),
    "cotrain.rollout_share": Retired(
        1.0, "partial rollouts are gone: leave it out, an iteration waits for all answers", in_digest=False
    ),
    "engine.node_copies": Retired(
        1, "copies of the weights in each node (hpZ) are gone: leave it out, all ranks share one", in_digest=True
    ),
    "engine.probe": Retired(
        "auto", "the choice of a probe is gone: leave it out, each question has its own backward pass", in_digest=False
    ),
    "engine.rollout_quantisation": Retired(
        None, "quantised rollouts are an argument of vLLM now: set engine.vllm to {quantization: fp8}", in_digest=False
    ),
}
"""Retired settings by dotted name."""


def drop_retired(values: Any) -> Any:
    """Remove retired settings that are switched off. Raises ConfigError for one with another value."""
    for name, setting in RETIRED.items():
        *path, leaf = name.split(".")
        part = values
        for key in path:
            part = part.get(key) if isinstance(part, Mapping) else None
        if not isinstance(part, Mapping) or leaf not in part:
            continue
        if part[leaf] != setting.off:
            raise ConfigError(f"{name} = {abbreviate(part[leaf])}: no longer a setting", hint=setting.advice)
        values = _replace_part(values, path, {key: value for key, value in part.items() if key != leaf})
    return values


def add_retired(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Add to a run's settings the retired ones that its digest includes."""
    for name, setting in RETIRED.items():
        *path, leaf = name.split(".")
        part = values
        for key in path:
            part = part[key]
        if setting.in_digest:
            values = _replace_part(values, path, {**part, leaf: setting.off})
    return values


def _replace_part(values: Mapping[str, Any], path: list[str], part: Mapping[str, Any]) -> Mapping[str, Any]:
    """Copy settings with the mapping at a path of keys replaced."""
    if not path:
        return part
    return {**values, path[0]: _replace_part(values[path[0]], path[1:], part)}
