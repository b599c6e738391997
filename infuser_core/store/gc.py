"""Garbage collection: `infuser gc` lists removable files and removes them on request; runs prune old checkpoints.

Safe to kill at any point: a folder is renamed into `.trash` before its files are deleted, an artifact is deleted before
its inputs, and files of a checkpoint are listed in `pruned.json` before they are deleted. The next `infuser gc --apply`
continues. Files left by killed processes are removed unless they are needed. A process holds the lock of a key while it
computes the key in a workspace, so a workspace whose key is not locked is abandoned, unless a process on
another machine, whose locks may be invisible, executes a run.
"""

import fcntl
import fnmatch
import os
import shutil
import time
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

from infuser_core.config.phase_table import Phase
from infuser_core.config.run import KeepSettings
from infuser_core.errors import BusyRunError, StoreError, quantity
from infuser_core.store import lease, pruned, runs
from infuser_core.store.catalogue import (
    Catalogue,
    Holder,
    checkpoints_of,
    held_keys,
    holder_of,
    keys_held_elsewhere,
    list_evaluations,
    list_holders,
)
from infuser_core.store.recipe import MANIFEST, artifact_folder, read_record
from infuser_core.store.retention import Extent, Retention, RunState, pinned_iterations, retention_by_key
from infuser_core.store.store import DAMAGED, PARTIAL, STAGING
from infuser_core.store.verify import format_size
from infuser_core.system import fault_points as faults
from infuser_core.system.durable import fsync
from infuser_core.terminal import format_rows, number_ranges

_MOST_NAMES = 5
_HEADINGS = {
    "moments": "optimizer moments of old checkpoints",
    "weights": "weights and moments of old checkpoints",
    "gradient": "gradients of iterations that are over",
    "unreferenced": "artifacts that no run holds",
    "damaged": "what was set aside as damaged",
    "staging": "workspaces of dead processes",
    "pieces": "pieces of complete stages",
    "draft": "temporary files",
    "trash": "what an interrupted gc left",
}
_EXTENTS = {"whole": "complete", "weights": "without moments", "facts": "without tensors"}


TRASH = ".trash"
_DRAFTS = ("*.tmp", ".now.*", "lease.*.dead")
_UNKNOWN = "an unknown process"
_FRESH_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GcItem:
    """A file or folder for gc to remove, or the files to prune from an artifact."""

    kind: str
    """Kind of the item: a key of the headings of the report."""
    path: Path
    """The file or folder; for a checkpoint or a gradient, the artifact's folder."""
    bytes: int
    """Bytes freed by the removal."""
    why: str
    """Human-readable reason for the removal."""
    files: Mapping[str, str] = field(default_factory=dict)
    """For an artifact to prune: part (moments, weights, gradient) by name of each file to remove. Empty to remove the
    entire path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GcPlan:
    """Items for gc to remove, in the order of removal, and the checkpoints that it keeps."""

    items: Sequence[GcItem]
    retention: Mapping[str, Mapping[str, Sequence[int]]]
    """Iterations of the checkpoints, by run and by extent of retention."""
    notes: Sequence[str]
    """Items that are not removed, and why."""

    @property
    def bytes(self) -> int:
        """Bytes freed by all items."""
        return sum(item.bytes for item in self.items)

    def to_json(self) -> dict[str, Any]:
        """Convert the plan to a JSON object for scripts."""
        items = [{**asdict(item), "path": str(item.path), "files": list(item.files)} for item in self.items]
        return {"bytes": self.bytes, "items": items, "kept": self.retention, "notes": list(self.notes)}

    def text(self, *, applied: bool, verbose: bool = False) -> str:
        """Format the plan as text: totals, and if `verbose` items. `applied` says whether they were removed."""
        title = f"nothing was removed: `infuser gc --apply` frees {format_size(self.bytes)}"
        title = f"removed {quantity(len(self.items), 'item')}, {format_size(self.bytes)}" if applied else title
        groups = {kind: [item for item in self.items if item.kind == kind] for kind in _HEADINGS}
        totals = [
            {"what": _HEADINGS[kind], "items": len(items), "size": format_size(sum(item.bytes for item in items))}
            for kind, items in groups.items()
            if items
        ]
        lines = [title, format_rows(totals)] if totals else ["nothing to remove"]
        for run, extents in self.retention.items():
            text = "; ".join(f"{_EXTENTS[extent]} {number_ranges(numbers)}" for extent, numbers in extents.items())
            lines.append(f"run {run} keeps its checkpoints after iterations: {text}")
        lines += [f"left alone: {note}" for note in self.notes]
        if self.items and not verbose:
            lines.append(f"{quantity(len(self.items), 'item')}: --verbose")
        for items in filter(None, groups.values() if verbose else ()):
            rows = [{"size": format_size(item.bytes), "path": item.path.name, "why": item.why} for item in items]
            lines += ["", f"{_HEADINGS[items[0].kind]}:", format_rows(rows, width=100)]
        return "\n".join(lines)


def plan_gc(root: Path, rule: KeepSettings = KeepSettings()) -> GcPlan:
    """Plan the removal of everything that no run or evaluation needs.

    Raises StoreError if damaged records make it unknown which artifacts are needed.
    """
    catalogue = Catalogue(root)
    # Read records before journals: an artifact committed in between is in no journal yet and must not look unneeded.
    records, run_holders = catalogue.records, list_holders(root)
    all_holders = [*run_holders, *list_evaluations(root)]
    keys_in_use = {key for holder in all_holders for key in held_keys(catalogue, holder)}
    free = {key: record for key, record in records.items() if key not in keys_in_use}
    for holder in all_holders:
        if holder.broken:
            some = f"{', '.join(sorted(free)[:_MOST_NAMES])}{', ...' if len(free) > _MOST_NAMES else ''}"
            what = f"; by what can be read, {len(free)} artifacts would be removed: {some}" if free else ""
            raise StoreError(
                f"gc cannot know what {holder.folder} holds: {holder.broken}{what}",
                hint="`infuser doctor` says what to do; or remove that folder if it is not wanted",
            )
    for key, what in catalogue.damaged.items():
        hint = "`infuser doctor --repair` moves it aside and computes it again if a run needs it"
        raise StoreError(f"gc cannot know what {key} was made from: {what}", hint=hint)
    states = {holder.name: _state(catalogue, holder) for holder in run_holders}
    # Of each checkpoint and gradient, the largest extent that any of the runs holding it requires.
    retention: dict[str, Retention] = {}
    for holder in run_holders:
        for key, needed in retention_by_key(catalogue, holder, states[holder.name], rule):
            if needed[0] > retention.setdefault(key, needed)[0]:
                retention[key] = needed
    items = plan_pruning(catalogue, retention)
    notes: list[str] = []
    live = [holder.name for holder in all_holders if holder.is_live]
    if free and live:
        notes.append(f"{len(free)} artifacts that no run holds: run {live[0]} is at work and may use them")
    elif free:
        # Remove an artifact before its inputs, so that no artifact ever lacks an input.
        sources = {
            key: sorted({identity.split("@")[0] for identity in record.inputs.values()} & set(free))
            for key, record in sorted(free.items())
        }
        folders = [artifact_folder(root, key) for key in [*TopologicalSorter(sources).static_order()][::-1]]
        items += [GcItem(kind="unreferenced", path=f, bytes=size_on_disk(f), why="no run holds it") for f in folders]
    for each in find_leftovers(root, keys_in_use=frozenset(keys_in_use)):
        if each.needed:
            notes.append(f"{each.path}: {each.needed}")
        else:
            why = f"left by {each.owner}" if each.kind != "damaged" else "computed again, or not needed"
            items.append(GcItem(kind=each.kind, path=each.path, bytes=each.bytes, why=why))
    order = list(_HEADINGS)
    items.sort(key=lambda item: order.index(item.kind))
    numbers: dict[str, dict[str, list[int]]] = {}
    for holder in run_holders:
        for number, record in checkpoints_of(catalogue, holder):
            extent = retention[record.key][0].name.lower()
            of_extent = numbers.setdefault(holder.name, {}).setdefault(extent, [])
            if number not in of_extent:
                of_extent.append(number)
    return GcPlan(items=items, retention=numbers, notes=notes)


def _state(catalogue: Catalogue, holder: Holder) -> RunState:
    numbers = {number for number, _ in checkpoints_of(catalogue, holder)}
    passed = max(numbers, default=0)
    is_over = holder.is_finished and not holder.is_live
    if not is_over:
        # Count iterations of the newest attempt only: earlier attempts may have had other artifacts.
        updated = (e.iteration + 1 for e in holder.current if e.phase == Phase.UPDATE_SOLVER and e.digest)
        passed = max(updated, default=-1)
    selections = map(catalogue.find, [key for key in holder.keys if key.startswith("select-")])
    selected = {int(record.summary["selected_iteration"]) for record in selections if record}
    return RunState(
        iterations=numbers,
        passed=passed,
        selected=selected.pop() if is_over and len(selected) == 1 else None,
        pinned=pinned_iterations(catalogue.root, holder.name),
    )


def plan_pruning(catalogue: Catalogue, retention: Mapping[str, Retention]) -> list[GcItem]:
    """Items for the files to prune from checkpoints and gradients, including those that an interrupted gc left."""
    items = []
    for key, (extent, why) in retention.items():
        folder = artifact_folder(catalogue.root, key)
        # Prune all parts, only the moments, or nothing.
        parts = {Extent.FACTS: list(pruned.PARTS), Extent.WEIGHTS: [pruned.MOMENTS]}.get(extent, [])
        names = sorted(entry.name for entry in folder.iterdir()) if parts and folder.is_dir() else []
        files = {name: part for part in parts for each in pruned.PARTS[part] for name in fnmatch.filter(names, each)}
        if files:
            num_bytes = sum((folder / name).stat().st_size for name in files)
            widest = max(files.values(), key=list(pruned.PARTS).index)
            items.append(GcItem(kind=widest, path=folder, files=files, bytes=num_bytes, why=why))
    return items


def apply_plan(root: Path, plan: GcPlan) -> None:
    """Remove the planned items. The caller must hold `runs.hold_sweep_lock` since before the plan was made.

    Raises StoreError if a file cannot be removed.
    """
    try:
        for item in plan.items:
            if item.files:
                _prune_files(item)
            else:
                _delete(root, item.path)
    except StoreError:
        raise
    except OSError as error:
        hint = "what was removed so far is recorded; `infuser gc --apply` continues"
        raise StoreError(f"cannot remove from {root}: {error.strerror or error}", hint=hint) from error


def prune_run(root: Path, run: str, rule: KeepSettings, *, passed: int, candidates: Collection[int]) -> GcPlan:
    """Prune a running run's checkpoints and gradients that it no longer needs after `passed` iterations.

    Keeps the weights of `candidates` for selection, and all artifacts that other runs or evaluations hold. Removes
    nothing while another process removes files, or if a damaged record makes it unknown what other runs hold: the next
    iteration tries again.
    """
    try:
        with runs.hold_sweep_lock(root):
            plan = _plan_rolling(root, run, rule, passed=passed, candidates=candidates)
            apply_plan(root, plan)
            return plan
    except BusyRunError as error:
        return GcPlan(items=[], retention={}, notes=[error.message])


def _plan_rolling(root: Path, run: str, rule: KeepSettings, *, passed: int, candidates: Collection[int]) -> GcPlan:
    """Plan for `prune_run`; reads the run's records, and of other runs only the journals that changed."""
    catalogue, own = Catalogue(root), holder_of(root, run)
    numbers = {number for number, _ in checkpoints_of(catalogue, own)}
    shared, unknown = keys_held_elsewhere(root, own)
    for why in (f"{own.folder}: {own.broken}" if own.broken else unknown, *catalogue.damaged.values()):
        if why:
            return GcPlan(items=[], retention={}, notes=[f"nothing is removed while a record is damaged: {why}"])
    state = RunState(
        iterations=numbers,
        passed=passed,
        selected=None,
        pinned=pinned_iterations(root, run),
        candidates=candidates,
    )
    retention = {key: each for key, each in retention_by_key(catalogue, own, state, rule) if key not in shared}
    return GcPlan(items=plan_pruning(catalogue, retention), retention={}, notes=[])


def _prune_files(item: GcItem) -> None:
    manifest, removed = read_record(item.path), pruned.read_removed(item.path)
    now = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    fresh = [
        pruned.Removed(file=name, part=part, rule=item.why, at=now, **manifest.files[name])
        for name, part in item.files.items()
        if name not in removed and name in manifest.files
    ]
    if fresh:
        pruned.write_removed(item.path, [*removed.values(), *fresh])
    faults.point("gc:recorded")
    for name in item.files:
        (item.path / name).unlink()
        faults.point("gc:file")
    fsync(item.path)


def _delete(root: Path, path: Path) -> None:
    trash = root / TRASH
    if path.parent != trash:
        trash.mkdir(exist_ok=True)
        target = trash / f"{path.name}.{uuid.uuid4().hex[:8]}"
        path.rename(target)
        fsync(path.parent)
        faults.point("gc:renamed")
        path = target
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
    faults.point("gc:removed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """A file or folder outside of committed artifacts, left by a process that was killed or by a repair."""

    kind: str
    """staging, pieces, draft, damaged or trash."""
    path: Path
    owner: str
    """Process, run or artifact that it belongs to, as text."""
    needed: str = ""
    """Why it must not be removed; empty if it may be."""

    @property
    def bytes(self) -> int:
        """Total size of its files, bytes."""
        return size_on_disk(self.path)


def find_leftovers(root: Path, *, keys_in_use: frozenset[str] = frozenset()) -> list[Leftover]:
    """Find workspaces, finished pieces, temporary files, set-aside artifacts and trash in the store.

    `keys_in_use` are the keys of runs and evaluations, whose damaged artifacts stay until they are computed again.
    """
    result = list(_find_drafts(root))
    # Locks of another machine may be invisible here: keep workspaces while any of its processes is alive.
    living = filter(None, map(lease.find_holder_elsewhere, runs.runs_folder(root).glob("*")))
    elsewhere = next((f"{each.holder} may work on it" for each in living), "")
    for path in (root / STAGING).glob("*"):
        worker, at_work = _worker_on(root, path.name.partition(".")[0])
        result.append(Leftover(kind="staging", path=path, owner=worker, needed=at_work or elsewhere))
    for path in (root / PARTIAL).glob("*"):
        worker, at_work = _worker_on(root, path.name)
        unfinished = "" if _is_committed(root, path.name) else "finished pieces of a stage that is not complete"
        result.append(Leftover(kind="pieces", path=path, owner=worker, needed=at_work or unfinished))
    for path in (root / DAMAGED).glob("*"):
        key = path.name.rpartition(".")[0]
        is_waiting = key in keys_in_use and not _is_committed(root, key)
        needed = "its artifact is not computed again yet" if is_waiting else ""
        result.append(Leftover(kind="damaged", path=path, owner=key, needed=needed))
    result += [Leftover(kind="trash", path=path, owner="an interrupted gc") for path in (root / TRASH).glob("*")]
    return sorted(result, key=lambda leftover: (leftover.kind, leftover.path))


def size_on_disk(path: Path) -> int:
    """Size of a file, or of all files below a folder, bytes; ignores files that disappear during the call."""
    is_file = path.is_file() or path.is_symlink()
    files = [path] if is_file else [Path(folder) / name for folder, _, names in os.walk(path) for name in names]
    total = 0
    for file in files:
        with suppress(FileNotFoundError):
            total += file.lstat().st_size
    return total


def _find_drafts(root: Path) -> Iterator[Leftover]:
    """Find temporary files in runs without a living process, in artifacts, and in the store's root folder."""
    for folder in runs.runs_folder(root).glob("*"):
        if folder.is_dir() and not runs.is_held(root, folder.name):
            for path in [path for pattern in _DRAFTS for path in folder.glob(pattern)]:
                yield Leftover(kind="draft", path=path, owner=f"run {folder.name}")
    for path in (root / "artifacts").glob("*/*/.*.tmp"):
        yield Leftover(kind="draft", path=path, owner=path.parent.name)
    yield from (Leftover(kind="draft", path=path, owner="a start") for path in root.glob(".writable.*"))
    for path in root.glob(".*.tmp"):
        with suppress(FileNotFoundError):
            # A fresh file may belong to a reader that is just replacing the list of verified files.
            if time.time() - path.stat().st_mtime > _FRESH_SECONDS:
                yield Leftover(kind="draft", path=path, owner="a start")


def _is_committed(root: Path, key: str) -> bool:
    return (artifact_folder(root, key) / MANIFEST).is_file()


def _worker_on(root: Path, key: str) -> tuple[str, str]:
    """Name of the last process that locked a key; and a note if it still holds the lock, otherwise an empty text."""
    path = root / "locks" / key
    if not path.is_file():
        return _UNKNOWN, ""
    with path.open("r") as handle:
        name = handle.read().strip() or _UNKNOWN
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return name, f"{name} works on it"
        return name, ""
