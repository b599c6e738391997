"""Choose how influence is scored: by the fast probe if it supports every layer of the model, else by the reference.

A probe computes, for every question, the products of its gradient and of the optimizer's direction with a reference.
"""

import warnings
from functools import cache

from infuser_core.errors import EngineError, EngineWarning

PROBES = ("auto", "fast", "reference")
"""Values of `engine.probe`."""

COST = (
    "questions are scored one backward pass each, with one more gradient of the model's size in memory; "
    "measured on a CPU, that takes up to 1.7 times as long for a small model"
)
"""Cost of the reference probe, for a warning."""


class UnknownLayerError(EngineError):
    """Raised for a model, or a pass through a model, that only the reference probe can score."""


def refusal(what: str) -> UnknownLayerError:
    """Build the error for a model that only the reference probe can score."""
    return UnknownLayerError(f"the fast probe cannot handle {what}", hint="set engine.probe to auto or reference")


class ProbeChoice:
    """The probe in use: that of the setting, unless a model forces the reference probe, for a recorded reason.

    Raises EngineError for an unknown setting.
    """

    def __init__(self, setting: str) -> None:
        if setting not in PROBES:
            raise EngineError(f"unknown probe {setting!r}", hint=f"choose one of {', '.join(PROBES)}")
        self._setting = setting
        self._passed_over = ""

    @property
    def is_fast(self) -> bool:
        """Whether the fast probe is in use."""
        return self._setting != "reference" and not self._passed_over

    def renew(self) -> None:
        """Return to the probe of the setting, for a new model."""
        self._passed_over = ""

    def pass_over(self, error: UnknownLayerError) -> None:
        """Switch to the reference probe, and warn once of its cost. Raises `error` if the setting is `fast`."""
        if self._setting == "fast":
            raise error
        self._passed_over = error.message
        _warn_once(f"{error.message}: {COST}")

    def facts(self) -> dict[str, str]:
        """Return the reason for a forced reference probe, for an artifact's record; empty if there is none."""
        return {"probe": "reference", "probe_passed_over": self._passed_over} if self._passed_over else {}


@cache
def _warn_once(text: str) -> None:
    # Cached, so that a process warns once, although every phase creates its engines.
    warnings.warn(text, EngineWarning, stacklevel=3)
