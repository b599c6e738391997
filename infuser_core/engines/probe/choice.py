"""Choice of the probe: the fast one if its recorder supports every layer of a model, else the reference one."""

import warnings
from functools import cache

from infuser_core.errors import EngineError, EngineWarning

PROBES = ("auto", "fast", "reference")
"""Values of `engine.probe`."""

COST = (
    "questions are scored one backward pass each, with one more gradient of the model's size in memory; "
    "measured on a CPU, that takes up to 1.7 times as long for a small model"
)
"""Price of the reference probe."""


class UnknownLayerError(EngineError):
    """Raised for a model, or a pass through it, that only the reference probe can score."""


def refusal(what: str) -> UnknownLayerError:
    """The error for a model that only the reference probe can score."""
    return UnknownLayerError(f"the fast probe cannot handle {what}", hint="set engine.probe to auto or reference")


class ProbeChoice:
    """The probe by its setting, and the reason for another. Raises EngineError for an unknown name."""

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
        """Forget the reason for another probe, for a new model."""
        self._passed_over = ""

    def pass_over(self, error: UnknownLayerError) -> None:
        """Switch to the reference probe, and warn once of its cost. Raises the error if the setting is `fast`."""
        if self._setting == "fast":
            raise error
        self._passed_over = error.message
        _warn_once(f"{error.message}: {COST}")

    def facts(self) -> dict[str, str]:
        """The reason for another probe, for an artifact's record."""
        return {"probe": "reference", "probe_passed_over": self._passed_over} if self._passed_over else {}


@cache
def _warn_once(text: str) -> None:
    # Cached, so once in a process: every phase creates its engines.
    warnings.warn(text, EngineWarning, stacklevel=3)
