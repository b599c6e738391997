"""Settings of a run by iteration: a forked run has its origin's settings in the iterations before the fork."""

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
    """Settings that a forked run inherits for its iterations before the fork."""

    before: int
    """First iteration to which the settings no longer apply."""
    config: RunConfig

    def to_json(self) -> dict[str, Any]:
        """The JSON object stored in the run's record."""
        return {"before": self.before, "config": self.config.model_dump(mode="json")}


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Settings of a run by iteration: its own, and those inherited by forking."""

    latest: RunConfig
    """The run's own settings."""
    earlier: Sequence[FormerSettings] = ()
    """Settings of the runs that it descends from, oldest first."""
    forked_from: str = ""
    """Name of the run that it was forked from; empty if it is not a fork."""

    @property
    def first(self) -> RunConfig:
        """Settings of the stages before the co-training loop."""
        return self.earlier[0].config if self.earlier else self.latest

    @property
    def all(self) -> list[RunConfig]:
        """All configurations, oldest first."""
        return [*(part.config for part in self.earlier), self.latest]

    def at(self, iteration: int) -> RunConfig:
        """Settings of an iteration; -1 means the stages before the co-training loop."""
        if iteration < 0:
            return self.first
        return next((part.config for part in self.earlier if iteration < part.before), self.latest)

    def for_measurement(self, iteration: int) -> RunConfig:
        """Settings for validating or evaluating the checkpoint after `iteration` iterations.

        They are the latest settings, with the seed of the iteration that made the checkpoint.
        """
        if not self.earlier:
            return self.latest
        return self.latest.model_copy(update={"seed": self.at(iteration - 1).seed})

    def fork(self, at: int, config: RunConfig, *, origin: str) -> "History":
        """History of a new run that is forked from this one before iteration `at`."""
        earlier = [part for part in self.earlier if part.before < at]
        at_fork = next((part.config for part in self.earlier if part.before >= at), self.latest)
        earlier.append(FormerSettings(before=at, config=at_fork))
        return History(latest=config, earlier=tuple(earlier), forked_from=origin)


def load_history(root: Path, name: str, config: RunConfig) -> History:
    """Read the history of a run whose own settings are `config`; only a forked run has earlier settings.

    Raises StoreError for a damaged record.
    """
    record = runs.read_run_or_empty(root, name)
    try:
        earlier = tuple(
            FormerSettings(before=int(part["before"]), config=validate(part["config"]))
            for part in record.get("earlier", [])
        )
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(f"the record of run {name} is damaged: {error}", hint="fork it again") from error
    return History(latest=config, earlier=earlier, forked_from=str(record.get("forked_from", "")))
