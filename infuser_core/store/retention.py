"""Retention of checkpoints: keep all of one, its weights, or the facts about it; pins keep it whole.

Training goes on from whole checkpoints alone: AdamW's moments enter the influence score. Sampling needs the weights.
Pins are in the record of their run.
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
    """Levels of retention of a checkpoint; the larger, the more."""

    FACTS = 0
    WEIGHTS = 1
    WHOLE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """State of a run for retention."""

    iterations: Collection[int]
    """Iterations of its checkpoints, the anchor (0) included."""
    passed: int
    """The run needs nothing older to go on from here: for a finished run its last iteration."""
    selected: int | None
    """The selected checkpoint; None while any may still be chosen."""
    pinned: Collection[int]
    """Iterations that a person pinned."""
    candidates: Collection[int] | None = None
    """Iterations whose checkpoint may still be selected; None where any may."""


Retention = tuple[Extent, str]
"""Retention of one checkpoint, with its reason: the rule, for people."""


def retention_of_checkpoints(state: RunState, rule: KeepSettings) -> dict[int, Retention]:
    """Retention of each checkpoint of a run by its number of iterations."""
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
    """Retention of the gradients of an iteration, which only its phases need."""
    if iteration in state.pinned:
        return Extent.WHOLE, "pinned"
    if iteration >= state.passed:
        return Extent.WHOLE, "its iteration is under way"
    return Extent.FACTS, "its iteration is over"


def retention_by_key(
    catalogue: Catalogue, holder: Holder, state: RunState, rule: KeepSettings
) -> Iterator[tuple[str, Retention]]:
    """Keys of a run's checkpoints and gradients, and what is kept of each.

    The newest are those of each role: where the roles take turns, one waits on an old checkpoint.
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
    """Iterations after which this run's checkpoints are pinned. Raises StoreError for an unreadable record."""
    return {int(number) for number in runs.read_run_or_empty(root, run).get("pins", [])}


def pin(root: Path, place: str) -> str:
    """Pin RUN@ITERATION; returns what to tell the person. Raises UsageError where there is no such checkpoint."""
    holder, iteration = _parse(root, place)
    catalogue, name = Catalogue(root), holder.name
    records = checkpoints_at(catalogue, holder, iteration)
    runs.change_run(root, name, pins=sorted(pinned_iterations(root, name) | {iteration}))
    message = f"pinned {name}@{iteration}: {', '.join(record.key for record in records)}"
    if pruned_keys(catalogue, records):
        message += f"; gc thinned it out: `infuser doctor {name} --repair --iteration {iteration}` makes it whole"
    return message


def unpin(root: Path, place: str) -> str:
    """Take a pin away; returns what to tell the person. Raises UsageError for what is not pinned."""
    holder, iteration = _parse(root, place)
    now = pinned_iterations(root, holder.name)
    if iteration not in now:
        raise UsageError(f"{place} is not pinned", hint=f"pinned: {', '.join(pin_lines(list_pins(root)))}")
    runs.change_run(root, holder.name, pins=sorted(now - {iteration}))
    return f"unpinned {holder.name}@{iteration}"


def list_pins(root: Path) -> list[dict[str, Any]]:
    """Every pin: run, iteration, keys of its checkpoints. Raises StoreError where the run has lost an artifact."""
    catalogue, result = Catalogue(root), []
    for holder in list_holders(root):
        pins = sorted(pinned_iterations(root, holder.name))
        if pins:  # what cannot be read would be missing in the list
            catalogue.journal_entries(holder.name)
        for iteration in pins:
            keys = [record.key for number, record in checkpoints_of(catalogue, holder) if number == iteration]
            result.append({"run": holder.name, "iteration": iteration, "checkpoints": keys})
    return result


def pin_lines(pins: list[dict[str, Any]]) -> list[str]:
    """The pins for people."""
    return [f"{each['run']}@{each['iteration']}  {' '.join(each['checkpoints'])}" for each in pins] or ["no pins"]


def _parse(root: Path, place: str) -> tuple[Holder, int]:
    """The run and the iteration that RUN@ITERATION names."""
    name, mark, number = place.rpartition("@")
    if not mark or not re.fullmatch(NUMBER, number):
        raise UsageError(f"{place!r} names no checkpoint", hint="RUN@ITERATION, e.g. nano@5")
    name = runs.find_run(root, name)
    return holder_of(root, name), int(number)
