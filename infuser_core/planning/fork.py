"""Forks: runs that share another run's iterations up to a point and have different settings from there on.

A run's history lists its settings by iteration; a fork starts with its origin's earlier settings.
Rules by kind of stage:
- stages before the loop (corpus, reference questions, anchor) use the settings that the run began with;
- the phases of iteration t use the settings valid at t;
- measurements (validation, benchmarks, selection) use the latest settings for every checkpoint, because
  checkpoints are compared with each other; only the sampling seed is that of the checkpoint's iteration.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from infuser_core.config.overlays import validate, with_overrides
from infuser_core.config.phase_table import TESTS
from infuser_core.config.recorded import recorded
from infuser_core.config.run import RunConfig
from infuser_core.errors import ConfigError, UsageError
from infuser_core.planning.place import Repeat, load_repeats
from infuser_core.planning.plan import leaves_that_differ
from infuser_core.store import runs
from infuser_core.store.history import FormerSettings, History, load_history

_FIXED = {
    "anchor": "every checkpoint starts from it",
    "data": "the corpus and every iteration before read these questions",
    "corpus": "the documents were chosen before iteration 0",
    "cotrain.optimizer": "the anchor carries its state",
    "cotrain.adapter": "the anchor carries its first weights",
    "engine.sampler": "the anchor and every checkpoint are made with it",
    "engine.trainer": "the anchor and every checkpoint are made with it",
    "engine.dtype": "the anchor and every checkpoint are made with it",
}
"""Settings that a fork cannot change, with the reason."""
_EXCLUDE = "corpus.exclude"
"""Exception: excluded documents can change, because they affect only which documents later iterations draw."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """A planned fork, not yet recorded as a run."""

    origin: str
    """Name of the original run."""
    name: str
    at: int
    """First iteration with the fork's settings."""
    history: History
    repeats: Sequence[Repeat]
    """The origin's requests to recompute stages before that iteration, which also apply to the fork."""

    def to_json(self) -> dict[str, Any]:
        """Origin, iteration and earlier settings, for the run's record."""
        return {
            "forked_from": self.origin,
            "at": self.at,
            "earlier": [part.to_json() for part in self.history.earlier],
        }


def make_fork(root: Path, origin: str, *, at: int, changes: Sequence[str], name: str = "") -> Fork:
    """Plan a fork of a run with `key=value` changes. Raises UsageError or ConfigError if it is impossible."""
    config = validate(runs.read_config(root, origin))
    if not changes:
        raise UsageError("a fork needs other settings", hint="e.g. --set cotrain.solver.learning_rate=1e-5")
    if not 0 <= at <= config.cotrain.iterations:
        raise UsageError(
            f"--fork {origin}@{at}: it has iterations 0 to {config.cotrain.iterations - 1}",
            hint=f"give a number from 0 (own settings in all) to {config.cotrain.iterations} (after the last)",
        )
    own = with_overrides(config, changes)
    _refuse_fixed(config, own, at)
    name = name or f"{origin}-at{at}-{own.digest()[:6]}"
    runs.check_name(name)
    history = load_history(root, origin, config).fork(at, own, origin=origin)
    shared = [
        repeat
        for repeat in load_repeats(root, origin)
        if repeat.iteration < at or (repeat.iteration == at and repeat.phase in TESTS)
    ]
    return Fork(origin=origin, name=name, at=at, history=history, repeats=shared)


def _refuse_fixed(config: RunConfig, own: RunConfig, at: int) -> None:
    differing = leaves_that_differ(recorded(config, naming=True), recorded(own, naming=True))
    if not differing:
        raise UsageError("the settings are those that the run has: nothing to fork for", hint="change one with --set")
    for leaf in differing:
        if leaf.name.startswith(_EXCLUDE):
            continue
        reason = next((why for key, why in _FIXED.items() if leaf.is_at_or_below(key)), "")
        if reason:
            raise ConfigError(
                f"{leaf.name} cannot change at iteration {at}: {reason}",
                hint="start a separate run: `infuser run ... --set`; what the setting does not change is reused",
            )
    if own.cotrain.iterations < at:
        raise ConfigError(
            f"cotrain.iterations = {own.cotrain.iterations} ends before iteration {at}",
            hint=f"give at least {at}, or fork earlier",
        )


def record_fork(root: Path, fork: Fork) -> None:
    """Record the fork as a resumable run, unless it exists. Raises ConfigError if another run has its name."""
    path = runs.runs_folder(root) / fork.name / "run.json"
    if path.is_file():
        if load_history(root, fork.name, validate(runs.read_config(root, fork.name))) != fork.history:
            raise ConfigError(f"run {fork.name} exists and is another one", hint="choose another --name")
        return
    _write_record(root, fork.name, fork.history, fork.repeats, fork.to_json())


def record_variant(root: Path, origin: str, name: str, change: Callable[[RunConfig], RunConfig]) -> None:
    """Record a copy of the run `origin` with a change in its settings of every iteration, unless the copy exists."""
    if (runs.runs_folder(root) / name / "run.json").is_file():
        return
    former = load_history(root, origin, validate(runs.read_config(root, origin)))
    earlier = tuple(FormerSettings(before=part.before, config=change(part.config)) for part in former.earlier)
    history = History(latest=change(former.latest), earlier=earlier, forked_from=origin)
    facts = {"forked_from": origin, "earlier": [part.to_json() for part in earlier]}
    _write_record(root, name, history, load_repeats(root, origin), facts)


def _write_record(root: Path, name: str, history: History, repeats: Sequence[Repeat], facts: Mapping[str, Any]) -> None:
    common = {
        "name": name,
        "config": history.latest.model_dump(mode="json"),
        "created": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }
    repeated = {"repeats": [asdict(repeat) for repeat in repeats]} if repeats else {}
    runs.write_record(root, name, runs.RECORD, {**common, **facts, **repeated})
