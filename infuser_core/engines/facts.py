"""Facts about the engines of a stage: which ran, and on which device; they change no result's identity."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

Facts = Mapping[str, Any]
"""A few JSON values: device, dtype, attention, token budget."""


class Used:
    """The engines that were asked for, in their order."""

    def __init__(self) -> None:
        self._engines: dict[str, Any] = {}

    def add(self, kind: str, engine: Any) -> None:
        """An engine was asked for as `sampler` or `trainer`."""
        self._engines[kind] = engine

    def facts(self) -> dict[str, Facts]:
        """By kind, what each engine says of itself now; engines that say nothing are left out."""
        found = {kind: engine.facts() for kind, engine in self._engines.items() if hasattr(engine, "facts")}
        return {kind: facts for kind, facts in found.items() if facts}


_now: ContextVar[Used | None] = ContextVar("used", default=None)


@contextmanager
def noting() -> Iterator[Used]:
    """Engines that this thread asks for inside are noted."""
    used = Used()
    token = _now.set(used)
    try:
        yield used
    finally:
        _now.reset(token)


def note(kind: str, engine: Any) -> None:
    """Somebody asks for an engine."""
    used = _now.get()
    if used is not None:
        used.add(kind, engine)
