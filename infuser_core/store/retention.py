"""Retention of checkpoints: decide how much of each to keep (everything, only weights, no tensors); manage pins.

Training can only continue from a complete checkpoint, because it needs AdamW's moments, also for influence scores.
Sampling needs only the weights. A pin, set by the user, keeps a checkpoint complete; pins are stored in the record of
their run.
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from enum import IntEnum
from pathlib import Path
from typing import Any

from infuser_core.config.run import KeepSettings
from infuser_core.errors import NUMBER, UsageError
from infuser_core.store import runs
from infuser_core.store.catalogue import (
    Catalogue,
    Holder,
    checkpoints_at,
    checkpoints_of,
    gradients_of,
    holder_of,
    list_holders,
    pruned_keys,
)


class Extent(IntEnum):
    """Part of a checkpoint to keep: facts only (all but tensors), facts and weights, or everything. Ordered."""

    FACTS = 0
    WEIGHTS = 1
    WHOLE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """The state of a run that decides which of its checkpoints are kept."""

    iterations: Collection[int]
    """Iterations after which it has checkpoints, including the anchor (0)."""
    passed: int
    """Iteration from which the run continues without any older checkpoint; the last one of a finished run."""
    selected: int | None
    """Iteration of the selected checkpoint; None until one is selected."""
    pinned: Collection[int]
    """Iterations whose checkpoints the user pinned."""
    candidates: Collection[int] | None = None
    """Iterations whose checkpoint may still be selected; None if any may."""


Retention = tuple[Extent, str]
"""How much of an artifact to keep, and the human-readable reason."""


def retention_of_checkpoints(state: RunState, rule: KeepSettings) -> dict[int, Retention]:
    """Decide how much to keep of each checkpoint of a run; returns the decisions by number of iterations."""
    passed = sorted(number for number in state.iterations if number <= state.passed)
    newest = set(passed[-rule.full :]) | {number for number in state.iterations if number > state.passed}
    return {number: _verdict(number, state, rule, newest) for number in sorted(state.iterations)}


def _verdict(number: int, state: RunState, rule: KeepSettings, newest: Collection[int]) -> Retention:
    if number == 0:
        return Extent.WHOLE, "the anchor"
    if number in state.pinned:
        return Extent.WHOLE, "pinned"
    if number == state.selected:
        return Extent.WHOLE, "selected"
    if number in newest:
        return Extent.WHOLE, f"among the last {rule.full}"
    if rule.weights_every and number % rule.weights_every == 0:
        return Extent.WEIGHTS, f"weights of every {_ordinal(rule.weights_every)}"
    if state.selected is None and (state.candidates is None or number in state.candidates):
        return Extent.WEIGHTS, "weights until one is selected"
    nor = f", nor every {_ordinal(rule.weights_every)}" if rule.weights_every else ""
    return Extent.FACTS, f"not among the last {rule.full}{nor}"


def retention_of_gradients(iteration: int, state: RunState) -> Retention:
    """Decide whether to keep the gradients of an iteration, which only phases of that iteration need."""
    if iteration in state.pinned:
        return Extent.WHOLE, "pinned"
    if iteration >= state.passed:
        return Extent.WHOLE, "its iteration is under way"
    return Extent.FACTS, "its iteration is over"


def retention_by_key(
    catalogue: Catalogue, holder: Holder, state: RunState, rule: KeepSettings
) -> Iterator[tuple[str, Retention]]:
    """Decide how much to keep of each checkpoint and gradient of a run; yields pairs of key and decision.

    The newest checkpoints are counted for each role, because a role that is not being trained stays at an old one.
    """
    pairs = checkpoints_of(catalogue, holder)
    for phase in sorted({record.phase for _, record in pairs}):
        own = [(number, record.key) for number, record in pairs if record.phase == phase]
        retention = retention_of_checkpoints(replace(state, iterations={number for number, _ in own}), rule)
        yield from ((key, retention[number]) for number, key in own)
    yield from (
        (record.key, retention_of_gradients(record.iteration, state)) for record in gradients_of(catalogue, holder)
    )


def _ordinal(number: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th") if number % 100 not in (11, 12, 13) else "th"
    return f"{number}{ending}"


def pinned_iterations(root: Path, run: str) -> set[int]:
    """Iterations whose checkpoints are pinned in a run. Raises StoreError for an unreadable record."""
    return {int(number) for number in runs.read_run_or_empty(root, run).get("pins", [])}


def pin(root: Path, place: str) -> str:
    """Pin the checkpoints RUN@ITERATION so that gc keeps them complete; returns a message for the user.

    Raises UsageError if there is no such checkpoint.
    """
    holder, iteration = _parse(root, place)
    catalogue, name = Catalogue(root), holder.name
    records = checkpoints_at(catalogue, holder, iteration)
    runs.change_run(root, name, pins=sorted(pinned_iterations(root, name) | {iteration}))
    message = f"pinned {name}@{iteration}: {', '.join(record.key for record in records)}"
    if pruned_keys(catalogue, records):
        message += f"; gc thinned it out: `infuser doctor {name} --repair --iteration {iteration}` makes it whole"
    return message


def unpin(root: Path, place: str) -> str:
    """Remove the pin from RUN@ITERATION; returns a message for the user. Raises UsageError if it is not pinned."""
    holder, iteration = _parse(root, place)
    now = pinned_iterations(root, holder.name)
    if iteration not in now:
        raise UsageError(f"{place} is not pinned", hint=f"pinned: {', '.join(pin_lines(list_pins(root)))}")
    runs.change_run(root, holder.name, pins=sorted(now - {iteration}))
    return f"unpinned {holder.name}@{iteration}"


def list_pins(root: Path) -> list[dict[str, Any]]:
    """All pins in the store, each with run, iteration and keys of its checkpoints.

    Raises StoreError if a run with pins has lost an artifact.
    """
    catalogue, result = Catalogue(root), []
    for holder in list_holders(root):
        pins = sorted(pinned_iterations(root, holder.name))
        if pins:  # Raises StoreError for unreadable artifacts, which the list would silently lack.
            catalogue.journal_entries(holder.name)
        for iteration in pins:
            keys = [record.key for number, record in checkpoints_of(catalogue, holder) if number == iteration]
            result.append({"run": holder.name, "iteration": iteration, "checkpoints": keys})
    return result


def pin_lines(pins: list[dict[str, Any]]) -> list[str]:
    """Format pins as lines of text."""
    return [f"{each['run']}@{each['iteration']}  {' '.join(each['checkpoints'])}" for each in pins] or ["no pins"]


def _parse(root: Path, place: str) -> tuple[Holder, int]:
    """Parse RUN@ITERATION. Raises UsageError for another form or an unknown run."""
    name, mark, number = place.rpartition("@")
    if not mark or not re.fullmatch(NUMBER, number):
        raise UsageError(f"{place!r} names no checkpoint", hint="RUN@ITERATION, e.g. nano@5")
    name = runs.find_run(root, name)
    return holder_of(root, name), int(number)
