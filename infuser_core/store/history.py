"""A run's settings over its iterations: a fork has its origin's until the iteration at which it left."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infuser_core.config.overlays import validate
from infuser_core.config.run import RunConfig
from infuser_core.errors import StoreError
from infuser_core.store import runs


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """Settings that a forked run has left."""

    before: int
    """They hold in iterations before this one."""
    config: RunConfig
    """The settings."""

    def to_json(self) -> dict[str, Any]:
        """As it stands in a run's record."""
        return {"before": self.before, "config": self.config.model_dump(mode="json")}


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The settings of a run over its iterations."""

    latest: RunConfig
    """The run's own settings."""
    earlier: Sequence[Earlier] = ()
    """Settings of those that it descends from, the first first."""
    forked_from: str = ""
    """The run that it was forked from; empty for none."""

    @property
    def first(self) -> RunConfig:
        """Settings before the loop."""
        return self.earlier[0].config if self.earlier else self.latest

    @property
    def all(self) -> list[RunConfig]:
        """Every configuration, the first first."""
        return [*(part.config for part in self.earlier), self.latest]

    def at(self, iteration: int) -> RunConfig:
        """Settings of an iteration; -1 stands before the loop."""
        if iteration < 0:
            return self.first
        return next((part.config for part in self.earlier if iteration < part.before), self.latest)

    def measuring(self, iteration: int) -> RunConfig:
        """Settings by which a checkpoint is measured that has seen so many iterations."""
        if not self.earlier:
            return self.latest
        return self.latest.model_copy(update={"seed": self.at(iteration - 1).seed})

    def fork(self, at: int, config: RunConfig, *, origin: str) -> "History":
        """The history of a run that leaves this one before iteration `at`."""
        kept = [part for part in self.earlier if part.before < at]
        parted = Earlier(before=at, config=next((p.config for p in self.earlier if p.before >= at), self.latest))
        return History(latest=config, earlier=(*kept, parted), forked_from=origin)


def history_of(root: Path, name: str, config: RunConfig) -> History:
    """The history of a run whose own settings are these; a run that was never forked has no other."""
    record = runs.known_run(root, name)
    try:
        earlier = tuple(
            Earlier(before=int(part["before"]), config=validate(part["config"])) for part in record.get("earlier", [])
        )
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(f"the record of run {name} is damaged: {error}", hint="fork it again") from error
    return History(latest=config, earlier=earlier, forked_from=str(record.get("forked_from", "")))
