"""Settings that are no more. Stores still hold them, at the value that meant off, and names of runs depend on them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from infuser_core.errors import ConfigError, shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Retired:
    """A setting that was taken out."""

    off: Any
    """Its value in every configuration that can still run."""
    words: str
    """The thing it was, and what to do without it."""
    named: bool = True
    """Whether the names of runs had its value when it was off."""


RETIRED = {
    "cotrain.dev_mean": Retired(off=0.0, words="a running mean of dev gradients was no part of the paper"),
    "cotrain.one_backward": Retired(off=False, words="scores and update each take their own backward pass"),
    "cotrain.rollout_share": Retired(off=1.0, words="an iteration waits for all answers", named=False),
}
"""By dotted name."""


def without_retired(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """The values without retired settings. Raises ConfigError for one that is not off."""
    for name, retired in RETIRED.items():
        section, _, key = name.partition(".")
        held = values.get(section)
        if not isinstance(held, Mapping) or key not in held:
            continue
        if held[key] != retired.off or isinstance(held[key], bool) != isinstance(retired.off, bool):
            message = f"{name} = {shown(held[key])}: this setting is retired"
            raise ConfigError(message, hint=f"leave it out: {retired.words}")
        values = {**values, section: {other: value for other, value in held.items() if other != key}}
    return values


def with_retired(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values that a run's name is made from, with retired settings as they were when they were off."""
    for name, retired in RETIRED.items():
        section, _, key = name.partition(".")
        if retired.named:
            values = {**values, section: {**values[section], key: retired.off}}
    return dict(values)
