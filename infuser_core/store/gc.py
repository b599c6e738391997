"""`infuser gc`: list what may go, remove it when asked; and a run's own retention. Nothing else deletes.

A folder that goes is renamed into `.trash` before it is emptied, the users of an artifact before what they were made
from; files of a checkpoint are listed in `pruned.json` before they go. Killed anywhere, the store is sound, and the
next `infuser gc --apply` goes on. Leftovers of killed processes go as well, unless somebody still needs them: whoever
works on a key, to which a workspace in `.staging` belongs, holds its lock, which ends with the process.
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
from infuser_core.errors import BusyRunError, StoreError
from infuser_core.store import lease, pruned, runs
from infuser_core.store.catalogue import (
    Catalogue,
    Holder,
    checkpoints,
    evaluations,
    held_elsewhere,
    held_keys,
    holder_of,
    holders,
)
from infuser_core.store.recipe import MANIFEST, artifact_folder, read_record
from infuser_core.store.retention import Extent, RunState, Verdict, pinned, verdicts_of
from infuser_core.store.verify import size
from infuser_core.system import fault_points as faults
from infuser_core.system.durable import fsync
from infuser_core.terminal import table

_NAMED = 5
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


TRASH = ".trash"
DAMAGED = "damaged"
_DRAFTS = ("*.tmp", ".now.*", "lease.*.dead")
_UNKNOWN = "an unknown process"
_FRESH = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A file or folder that gc may remove."""

    kind: str
    """One of the headings."""
    path: Path
    """A file or folder; for a checkpoint or a gradient, the artifact's folder."""
    bytes: int
    """Bytes freed."""
    why: str
    """The rule, for people."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Files that go and the part each belongs to, where an artifact is thinned out; empty where the whole path goes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Artifacts that gc would remove, in the order of removal, and what it keeps."""

    items: Sequence[Item]
    """Items that may go."""
    kept: Mapping[str, Mapping[str, Sequence[int]]]
    """Run to extent to iterations of its checkpoints that stay so."""
    notes: Sequence[str]
    """Items left alone, and why."""

    @property
    def bytes(self) -> int:
        """Bytes freed."""
        return sum(item.bytes for item in self.items)

    def to_json(self) -> dict[str, Any]:
        """The plan for scripts."""
        items = [{**asdict(item), "path": str(item.path), "files": list(item.files)} for item in self.items]
        return {"bytes": self.bytes, "items": items, "kept": self.kept, "notes": list(self.notes)}

    def text(self, *, applied: bool) -> str:
        """The plan for people: totals, then what they are made of."""
        said = f"nothing was removed: `infuser gc --apply` frees {size(self.bytes)}"
        said = f"removed {len(self.items)} items, {size(self.bytes)}" if applied else said
        chosen = {kind: [item for item in self.items if item.kind == kind] for kind in _HEADINGS}
        totals = [
            {"what": _HEADINGS[kind], "items": len(items), "size": size(sum(item.bytes for item in items))}
            for kind, items in chosen.items()
            if items
        ]
        lines = [said, table(totals)] if totals else ["nothing to remove"]
        for run, extents in self.kept.items():
            shown = "; ".join(f"{extent} {', '.join(map(str, numbers))}" for extent, numbers in extents.items())
            lines.append(f"run {run} keeps its checkpoints after iterations: {shown}")
        lines += [f"left alone: {note}" for note in self.notes]
        for items in filter(None, chosen.values()):
            rows = [{"size": size(item.bytes), "path": item.path.name, "why": item.why} for item in items]
            lines += ["", f"{_HEADINGS[items[0].kind]}:", table(rows, width=100)]
        return "\n".join(lines)


def plan(root: Path, rule: KeepSettings = KeepSettings()) -> Plan:
    """Items that may go now. Raises StoreError where a run's record cannot be read: nobody knows then what it holds."""
    catalogue = Catalogue(root)
    # Before the journals: what is committed meanwhile may not be in them yet.
    records, found = catalogue.records, holders(root)
    everybody = [*found, *evaluations(root)]
    held = {key for holder in everybody for key in held_keys(catalogue, holder)}
    _refuse_broken(everybody, sorted(records.keys() - held))
    for key, what in catalogue.damaged.items():
        hint = "`infuser doctor --repair` moves it aside and computes it again where a run needs it"
        raise StoreError(f"gc cannot know what {key} was made from: {what}", hint=hint)
    states = {holder.name: _state(catalogue, holder) for holder in found}
    wanted = _wanted(catalogue, found, states, rule)
    items = thinning(catalogue, wanted)
    notes: list[str] = []
    free = {key: record for key, record in records.items() if key not in held}
    live = [holder.name for holder in everybody if holder.live]
    if free and live:
        notes.append(f"{len(free)} artifacts that no run holds: run {live[0]} is at work and may come to use them")
    elif free:
        # Users first: no artifact ever lacks what it was made from while they are removed one by one.
        sources = {
            key: sorted({identity.split("@")[0] for identity in record.inputs.values()} & set(free))
            for key, record in sorted(free.items())
        }
        folders = [artifact_folder(root, key) for key in [*TopologicalSorter(sources).static_order()][::-1]]
        items += [Item(kind="unreferenced", path=f, bytes=size_of(f), why="no run holds it") for f in folders]
    for left in leftovers(root, held=frozenset(held)):
        if left.needed:
            notes.append(f"{left.path}: {left.needed}")
        else:
            why = f"left by {left.owner}" if left.kind != "damaged" else "computed again, or not needed"
            items.append(Item(kind=left.kind, path=left.path, bytes=left.bytes, why=why))
    order = list(_HEADINGS)
    items.sort(key=lambda item: order.index(item.kind))
    return Plan(items=items, kept=_kept(catalogue, found, wanted), notes=notes)


def _refuse_broken(everybody: Sequence[Holder], free: Sequence[str]) -> None:
    """Raises StoreError where a record is not whole, with the artifacts that no readable record holds."""
    for holder in everybody:
        if holder.broken:
            some = f"{', '.join(free[:_NAMED])}{', ...' if len(free) > _NAMED else ''}"
            what = f"; by what can be read, {len(free)} artifacts would be removed: {some}" if free else ""
            raise StoreError(
                f"gc cannot know what {holder.folder} holds: {holder.broken}{what}",
                hint="`infuser doctor` says what to do; or remove that folder if it is not wanted",
            )


def _state(catalogue: Catalogue, holder: Holder) -> RunState:
    numbers = {number for number, _ in checkpoints(catalogue, holder)}
    passed = max(numbers, default=0)
    at_rest = holder.ended and not holder.live
    if not at_rest:
        # What the newest attempt has reached: no attempt goes back behind that. Others may have had other artifacts.
        updated = (e.iteration + 1 for e in holder.current if e.phase == Phase.UPDATE_SOLVER and e.digest)
        passed = max(updated, default=-1)
    chosen = map(catalogue.find, [key for key in holder.keys if key.startswith("select-")])
    selected = {int(record.summary["selected_iteration"]) for record in chosen if record}
    return RunState(
        iterations=numbers,
        passed=passed,
        selected=selected.pop() if at_rest and len(selected) == 1 else None,
        pinned=pinned(catalogue.root, holder.name),
    )


def _wanted(
    catalogue: Catalogue, found: Sequence[Holder], states: Mapping[str, RunState], rule: KeepSettings
) -> dict[str, Verdict]:
    """Retention of every checkpoint and gradient; of several runs that hold one, the most that any of them wants."""
    strongest: dict[str, Verdict] = {}
    for holder in found:
        for key, verdict in verdicts_of(catalogue, holder, states[holder.name], rule):
            known = strongest.setdefault(key, verdict)
            if verdict[0] > known[0]:
                strongest[key] = verdict
    return strongest


def thinning(catalogue: Catalogue, wanted: Mapping[str, Verdict]) -> list[Item]:
    """Files of checkpoints and gradients that these verdicts do not keep; also what an interrupted gc has listed."""
    items = []
    for key, (extent, why) in wanted.items():
        folder = artifact_folder(catalogue.root, key)
        # By extent, the less is kept the more goes: everything, moments alone, or nothing.
        parts = {Extent.FACTS: list(pruned.PARTS), Extent.WEIGHTS: [pruned.MOMENTS]}.get(extent, [])
        names = sorted(entry.name for entry in folder.iterdir()) if parts and folder.is_dir() else []
        files = {name: part for part in parts for each in pruned.PARTS[part] for name in fnmatch.filter(names, each)}
        if files:
            freed = sum((folder / name).stat().st_size for name in files)
            widest = max(files.values(), key=list(pruned.PARTS).index)
            items.append(Item(kind=widest, path=folder, files=files, bytes=freed, why=why))
    return items


def _kept(
    catalogue: Catalogue, found: Collection[Holder], wanted: Mapping[str, Verdict]
) -> dict[str, dict[str, list[int]]]:
    kept: dict[str, dict[str, list[int]]] = {}
    for holder in found:
        for number, record in checkpoints(catalogue, holder):
            extent = wanted[record.key][0].name.lower()
            numbers = kept.setdefault(holder.name, {}).setdefault(extent, [])
            if number not in numbers:
                numbers.append(number)
    return kept


def apply(root: Path, chosen: Plan) -> None:
    """Remove what was planned. Call it under `runs.sweeping`, with a plan made under it."""
    try:
        for item in chosen.items:
            if item.files:
                _thin_out(item)
            else:
                _throw_away(root, item.path)
    except StoreError:
        raise
    except OSError as error:
        hint = "what was removed so far is recorded; `infuser gc --apply` goes on"
        raise StoreError(f"cannot remove from {root}: {error.strerror or error}", hint=hint) from error


def prune(root: Path, run: str, rule: KeepSettings, *, passed: int, candidates: Collection[int]) -> Plan:
    """Rolling retention: remove what a run with `passed` iterations behind it needs no longer.

    `candidates` for selection keep their weights, and what another run or evaluation holds stays.

    Removes nothing where another process cleans up, or where it is unknown what somebody else holds: the next
    iteration's end comes to it again.
    """
    try:
        with runs.sweeping(root):
            found = _rolling(root, run, rule, passed=passed, candidates=candidates)
            apply(root, found)
            return found
    except BusyRunError as error:
        return Plan(items=[], kept={}, notes=[error.message])


def _rolling(root: Path, run: str, rule: KeepSettings, *, passed: int, candidates: Collection[int]) -> Plan:
    """The plan of `prune`. Reads the records of the run's own artifacts, and other journals only where they changed."""
    catalogue, own = Catalogue(root), holder_of(root, run)
    made = checkpoints(catalogue, own)
    shared, unknown = held_elsewhere(root, own)
    for why in (f"{own.folder}: {own.broken}" if own.broken else unknown, *catalogue.damaged.values()):
        if why:
            return Plan(items=[], kept={}, notes=[f"nothing is removed while a record is damaged: {why}"])
    state = RunState(
        iterations={number for number, _ in made},
        passed=passed,
        selected=None,
        pinned=pinned(root, run),
        candidates=candidates,
    )
    wanted = {key: told for key, told in verdicts_of(catalogue, own, state, rule) if key not in shared}
    return Plan(items=thinning(catalogue, wanted), kept={}, notes=[])


def _thin_out(item: Item) -> None:
    manifest, known = read_record(item.path), pruned.read(item.path)
    now = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    fresh = [
        pruned.Removed(file=name, part=part, rule=item.why, at=now, **manifest.files[name])
        for name, part in item.files.items()
        if name not in known and name in manifest.files
    ]
    if fresh:
        pruned.write(item.path, [*known.values(), *fresh])
    faults.point("gc:recorded")
    for name in item.files:
        (item.path / name).unlink()
        faults.point("gc:file")
    fsync(item.path)


def _throw_away(root: Path, path: Path) -> None:
    trash = root / TRASH
    if path.parent != trash:
        trash.mkdir(exist_ok=True)
        gone = trash / f"{path.name}.{uuid.uuid4().hex[:8]}"
        path.rename(gone)
        fsync(path.parent)
        faults.point("gc:renamed")
        path = gone
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
    faults.point("gc:removed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """A file or folder that no artifact consists of."""

    kind: str
    """staging, pieces, draft, damaged or trash."""
    path: Path
    """Where it lies."""
    owner: str
    """Process that left it, in words."""
    needed: str = ""
    """Why it must stay; empty where it may go."""

    @property
    def bytes(self) -> int:
        """Size of all its files."""
        return size_of(self.path)


def leftovers(root: Path, *, held: frozenset[str] = frozenset()) -> list[Leftover]:
    """Everything left over. `held`: keys that runs hold, whose damaged remains are kept until they are repaired."""
    found = list(_drafts(root))
    # Another machine's locks may be invisible here; while one of its processes lives, its workspaces stay.
    living = filter(None, map(lease.holder_elsewhere, runs.runs_folder(root).glob("*")))
    elsewhere = next((f"{each.holder} may work on it" for each in living), "")
    for path in (root / ".staging").glob("*"):
        worker, at_work = _worker_on(root, path.name.partition(".")[0])
        found.append(Leftover(kind="staging", path=path, owner=worker, needed=at_work or elsewhere))
    for path in (root / ".partial").glob("*"):
        worker, at_work = _worker_on(root, path.name)
        unfinished = "" if _committed(root, path.name) else "finished pieces of a stage that is not complete"
        found.append(Leftover(kind="pieces", path=path, owner=worker, needed=at_work or unfinished))
    for path in (root / DAMAGED).glob("*"):
        key = path.name.rpartition(".")[0]
        waits = key in held and not _committed(root, key)
        needed = "its artifact is not computed again yet" if waits else ""
        found.append(Leftover(kind="damaged", path=path, owner=key, needed=needed))
    found += [Leftover(kind="trash", path=path, owner="an interrupted gc") for path in (root / TRASH).glob("*")]
    return sorted(found, key=lambda left: (left.kind, left.path))


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files below a folder; none for what its owner takes away meanwhile."""
    alone = path.is_file() or path.is_symlink()
    files = [path] if alone else [Path(folder) / name for folder, _, names in os.walk(path) for name in names]
    total = 0
    for file in files:
        with suppress(FileNotFoundError):
            total += file.lstat().st_size
    return total


def _drafts(root: Path) -> Iterator[Leftover]:
    """Temporary files beside what they were to replace, in runs that nobody executes, and in artifacts."""
    for folder in runs.runs_folder(root).glob("*"):
        if folder.is_dir() and not runs.is_held(root, folder.name):
            for path in [path for pattern in _DRAFTS for path in folder.glob(pattern)]:
                yield Leftover(kind="draft", path=path, owner=f"run {folder.name}")
    for path in (root / "artifacts").glob("*/*/.*.tmp"):
        yield Leftover(kind="draft", path=path, owner=path.parent.name)
    yield from (Leftover(kind="draft", path=path, owner="a start") for path in root.glob(".writable.*"))
    for path in root.glob(".*.tmp"):
        with suppress(FileNotFoundError):
            # Older than any reader needs to replace its record of what it has verified.
            if time.time() - path.stat().st_mtime > _FRESH:
                yield Leftover(kind="draft", path=path, owner="a start")


def _committed(root: Path, key: str) -> bool:
    return (artifact_folder(root, key) / MANIFEST).is_file()


def _worker_on(root: Path, key: str) -> tuple[str, str]:
    """The process that last took a key's lock, and where it still has it, that it is at work; both in words."""
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
