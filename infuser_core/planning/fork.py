"""Forks: runs that share another run's work before an iteration and have settings of their own from there on.

A run's history is its settings over its iterations: a fork has its origin's until the iteration at which it left.
Three rules, by what a stage does:
- what stands before the loop (corpus, reference questions, anchor) has the settings that the run began with;
- the phases of iteration t have the settings that held at t;
- measurements (validation, benchmarks, selection) have the latest settings, whichever checkpoint they measure, because
  checkpoints are compared with each other; only the seed of a checkpoint's answers is that of its own time.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from infuser_core.config.overlays import changed, validate
from infuser_core.config.phase_table import TESTS
from infuser_core.config.recorded import recorded
from infuser_core.config.run import RunConfig
from infuser_core.errors import ConfigError, UsageError
from infuser_core.planning.place import Repeat, repeats_of
from infuser_core.planning.plan import leaves_that_differ
from infuser_core.store import runs
from infuser_core.store.history import Earlier, History, history_of

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
"""Settings that hold for a whole run, and why."""
_EXCLUDE = "corpus.exclude"
"""The exception among them: it says what is drawn in an iteration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """A run that is to leave another one."""

    origin: str
    """The run that it leaves."""
    name: str
    """Its own name."""
    at: int
    """First iteration with settings of its own."""
    history: History
    """Its settings."""
    repeats: Sequence[Repeat]
    """Work that the origin computed again before that iteration: shared too."""

    def to_json(self) -> dict[str, Any]:
        """Facts of the run's record beside its settings."""
        return {
            "forked_from": self.origin,
            "at": self.at,
            "earlier": [part.to_json() for part in self.history.earlier],
        }


def fork_of(root: Path, origin: str, *, at: int, changes: Sequence[str], name: str = "") -> Fork:
    """The fork of a run. Raises UsageError or ConfigError for one that cannot be, with the reason."""
    config = validate(runs.read_config(root, origin))
    if not changes:
        raise UsageError("a fork needs settings of its own", hint="e.g. --set cotrain.solver.learning_rate=1e-5")
    if not 0 <= at <= config.cotrain.iterations:
        raise UsageError(
            f"--fork {origin}@{at}: it has iterations 0 to {config.cotrain.iterations - 1}",
            hint=f"give a number from 0 (own settings in all) to {config.cotrain.iterations} (after the last)",
        )
    own = changed(config, changes)
    _refuse_fixed(config, own, at)
    chosen = name or f"{origin}-at{at}-{own.digest()[:6]}"
    runs.check_name(chosen)
    history = history_of(root, origin, config).fork(at, own, origin=origin)
    shared = [
        repeat
        for repeat in repeats_of(root, origin)
        if repeat.iteration < at or (repeat.iteration == at and repeat.phase in TESTS)
    ]
    return Fork(origin=origin, name=chosen, at=at, history=history, repeats=shared)


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
                hint="start a run of its own: `infuser run ... --set`; what the setting does not change is reused",
            )
    if own.cotrain.iterations < at:
        raise ConfigError(
            f"cotrain.iterations = {own.cotrain.iterations} ends before iteration {at}",
            hint=f"give at least {at}, or fork earlier",
        )


def write(root: Path, fork: Fork) -> None:
    """Record the fork as a run that can be resumed. The same fork twice is one; raises ConfigError for another one."""
    path = runs.runs_folder(root) / fork.name / "run.json"
    if path.is_file():
        known = history_of(root, fork.name, validate(runs.read_config(root, fork.name)))
        if known != fork.history:
            raise ConfigError(f"run {fork.name} exists and is another one", hint="choose another --name")
        return
    _record(root, fork.name, fork.history, fork.repeats, fork.to_json())


def record_variant(root: Path, origin: str, name: str, change: Callable[[RunConfig], RunConfig]) -> None:
    """Record a run like another one with a change in all its settings, those before forks too; a known one stays."""
    if (runs.runs_folder(root) / name / "run.json").is_file():
        return
    known = history_of(root, origin, validate(runs.read_config(root, origin)))
    earlier = tuple(Earlier(before=part.before, config=change(part.config)) for part in known.earlier)
    history = History(latest=change(known.latest), earlier=earlier, forked_from=origin)
    facts = {"forked_from": origin, "earlier": [part.to_json() for part in earlier]}
    _record(root, name, history, repeats_of(root, origin), facts)


def _record(root: Path, name: str, history: History, repeats: Sequence[Repeat], facts: Mapping[str, Any]) -> None:
    common = {
        "name": name,
        "config": history.latest.model_dump(mode="json"),
        "created": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }
    salted = {"repeats": [asdict(repeat) for repeat in repeats]} if repeats else {}
    runs.write_record(root, name, runs.RECORD, {**common, **facts, **salted})
