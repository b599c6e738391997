"""A run's settings over its iterations: a fork has its origin's before the iteration at which it leaves."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infuser_core.config.overlays import validate
from infuser_core.config.run import RunConfig
from infuser_core.errors import StoreError
from infuser_core.store import runs


@dataclass(frozen=True, slots=True, kw_only=True)
class FormerSettings:
    """Settings of a run's iterations before a fork."""

    before: int
    """They hold in iterations before this one."""
    config: RunConfig

    def to_json(self) -> dict[str, Any]:
        """The entry of a run's record."""
        return {"before": self.before, "config": self.config.model_dump(mode="json")}


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The settings of a run over its iterations."""

    latest: RunConfig
    """The run's own settings."""
    earlier: Sequence[FormerSettings] = ()
    """Settings of the runs that it descends from, the oldest first."""
    forked_from: str = ""
    """The run that it was forked from; empty for none."""

    @property
    def first(self) -> RunConfig:
        """Settings before the loop."""
        return self.earlier[0].config if self.earlier else self.latest

    @property
    def all(self) -> list[RunConfig]:
        """Every configuration, the oldest first."""
        return [*(part.config for part in self.earlier), self.latest]

    def at(self, iteration: int) -> RunConfig:
        """Settings of an iteration; -1 means before the loop."""
        if iteration < 0:
            return self.first
        return next((part.config for part in self.earlier if iteration < part.before), self.latest)

    def measuring(self, iteration: int) -> RunConfig:
        """Settings that measure the checkpoint after `iteration` iterations."""
        if not self.earlier:
            return self.latest
        return self.latest.model_copy(update={"seed": self.at(iteration - 1).seed})

    def fork(self, at: int, config: RunConfig, *, origin: str) -> "History":
        """The history of a run that leaves this one before iteration `at`."""
        earlier = [part for part in self.earlier if part.before < at]
        at_fork = next((part.config for part in self.earlier if part.before >= at), self.latest)
        earlier.append(FormerSettings(before=at, config=at_fork))
        return History(latest=config, earlier=tuple(earlier), forked_from=origin)


def load_history(root: Path, name: str, config: RunConfig) -> History:
    """The history of a run with these settings; only a fork has earlier ones."""
    record = runs.known_run(root, name)
    try:
        earlier = tuple(
            FormerSettings(before=int(part["before"]), config=validate(part["config"]))
            for part in record.get("earlier", [])
        )
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(f"the record of run {name} is damaged: {error}", hint="fork it again") from error
    return History(latest=config, earlier=earlier, forked_from=str(record.get("forked_from", "")))
