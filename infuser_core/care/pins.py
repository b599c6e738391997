"""Checkpoints that a person wants whole: `pins.json` in the folder of their run."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infuser_core import runs
from infuser_core.care import pruned
from infuser_core.care.holders import Holder, checkpoints, holders
from infuser_core.care.repairing import checkpoints_at
from infuser_core.durable import write_json
from infuser_core.errors import StoreError, UsageError
from infuser_core.lineage.index import Catalogue
from infuser_core.store import Store

FILE = "pins.json"


def pinned(root: Path, run: str) -> set[int]:
    """Iterations after which this run's checkpoints are pinned. Raises StoreError for an unreadable record."""
    path = runs.runs_folder(root) / run / FILE
    try:
        return {int(number) for number in json.loads(path.read_bytes())["iterations"]}
    except FileNotFoundError:
        return set()
    except (ValueError, TypeError, KeyError) as error:
        hint = "remove the file and pin again; gc touches nothing until then"
        raise StoreError(f"{path} is damaged: {error}", hint=hint) from error


def pin(root: Path, place: str) -> str:
    """Pin RUN@ITERATION; returns what to tell the person. Raises UsageError where there is no such checkpoint."""
    named = _parse(root, place)
    holder, iteration = named.holder, named.iteration
    records = checkpoints_at(Catalogue(root), holder, iteration)
    _save(root, holder.name, pinned(root, holder.name) | {iteration})
    store = Store(root)
    thin = [record.key for record in records if pruned.read(store.folder(record.phase, record.key))]
    said = f"pinned {holder.name}@{iteration}: {', '.join(record.key for record in records)}"
    if thin:
        said += f"; gc thinned it out before: `infuser repair {holder.name} --iteration {iteration}` makes it whole"
    return said


def unpin(root: Path, place: str) -> str:
    """Take a pin away; returns what to tell the person. Raises UsageError for what is not pinned."""
    named = _parse(root, place)
    now = pinned(root, named.holder.name)
    if named.iteration not in now:
        known = ", ".join(lines(listed(root)))
        raise UsageError(f"{place} is not pinned", hint=f"pinned: {known}")
    _save(root, named.holder.name, now - {named.iteration})
    return f"unpinned {named.holder.name}@{named.iteration}"


def listed(root: Path) -> list[dict[str, Any]]:
    """Every pin: run, iteration and the keys of its checkpoints."""
    catalogue, found = Catalogue(root), []
    for holder in holders(root):
        for iteration in sorted(pinned(root, holder.name)):
            keys = [record.key for number, record in checkpoints(catalogue, holder) if number == iteration]
            found.append({"run": holder.name, "iteration": iteration, "checkpoints": keys})
    return found


def lines(found: list[dict[str, Any]]) -> list[str]:
    """The pins for people."""
    return [f"{each['run']}@{each['iteration']}  {' '.join(each['checkpoints'])}" for each in found] or ["no pins"]


def _save(root: Path, run: str, iterations: set[int]) -> None:
    path = runs.runs_folder(root) / run / FILE
    try:
        write_json(path, {"iterations": sorted(iterations)})
    except OSError as error:
        hint = "set INFUSER_STORE to a folder you may write"
        raise StoreError(f"cannot write {path}: {error.strerror or error}", hint=hint) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """What RUN@ITERATION names."""

    holder: Holder
    """The run."""
    iteration: int
    """Iterations behind its checkpoints."""


def _parse(root: Path, place: str) -> _Place:
    name, mark, number = place.rpartition("@")
    if not mark or not number.isdigit():
        raise UsageError(f"{place!r} names no checkpoint", hint="RUN@ITERATION, e.g. nano@5")
    name = runs.find_run(root, name)
    return _Place(holder=next(each for each in holders(root) if each.name == name), iteration=int(number))
