"""Choice of the probe: the fast one where its recorder knows every layer of a model, else the reference one."""

import warnings
from functools import cache

from infuser_core.errors import EngineError, EngineWarning

PROBES = ("auto", "fast", "reference")
"""Values of `engine.probe`."""

COST = (
    "questions are scored one backward pass each, with one more gradient of the model's size in memory; "
    "measured on a CPU, that takes up to 1.7 times as long where the model is small"
)
"""Price of the reference probe."""


class UnknownLayerError(EngineError):
    """A model, or a pass through it, that only the reference probe can score."""


def refusal(what: str) -> UnknownLayerError:
    """The error for a model that only the reference probe can score."""
    return UnknownLayerError(f"the fast probe cannot handle {what}", hint="set engine.probe to auto or reference")


class ProbeChoice:
    """The probe asked for by name, and why it became another. Raises EngineError for an unknown name."""

    def __init__(self, asked: str) -> None:
        if asked not in PROBES:
            raise EngineError(f"unknown probe {asked!r}", hint=f"choose one of {', '.join(PROBES)}")
        self._asked = asked
        self._passed_over = ""

    @property
    def is_fast(self) -> bool:
        """Whether the fast probe is to be tried, or goes on."""
        return self._asked != "reference" and not self._passed_over

    def renew(self) -> None:
        """Forget what the last model was like."""
        self._passed_over = ""

    def pass_over(self, error: UnknownLayerError) -> None:
        """Go on with the reference probe, and say once what it costs. Raises the error where `fast` was asked for."""
        if self._asked == "fast":
            raise error
        self._passed_over = error.message
        _warn(f"{error.message}: {COST}")

    def facts(self) -> dict[str, str]:
        """The reason for another probe, for an artifact's record."""
        return {"probe": "reference", "probe_passed_over": self._passed_over} if self._passed_over else {}


@cache
def _warn(text: str) -> None:
    # Once in a process: engines come and go with every phase.
    warnings.warn(text, EngineWarning, stacklevel=3)
