"""Index of the store: commit records of artifacts by key, and the artifacts that each run or evaluation holds.

A run holds the artifacts listed in its journals.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

from infuser_core.config.phase_table import CHECKPOINTS, GRADIENTS
from infuser_core.errors import DamagedArtifactError, MissingArtifactError, StoreError, UsageError
from infuser_core.store import lease, pruned, runs, verify
from infuser_core.store.journal import (
    ASIDE,
    RUNS,
    Entry,
    Journal,
    entries_of_last_attempt,
    newest_entries,
)
from infuser_core.store.recipe import MANIFEST, REMEDY, ArtifactRef, Record, artifact_folder, read_record
from infuser_core.system import sealed

_RECORD_FILES = (".jsonl", ".head", runs.RECORD, runs.EVALUATION, runs.ATTEMPT)
_MISSING = "`infuser doctor` names the run that holds it and the command that computes it again"


@lru_cache(maxsize=100_000)
def _read_record_once(folder: Path, _: object) -> Record:
    """Read a commit record, cached by the identity of its file and folders, because a server builds many catalogues."""
    return read_record(folder)


class Catalogue:
    """Commit records of a store's artifacts and entries of its journals at one time.

    They are read lazily, because all of them together take seconds, and only once.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.damaged: dict[str, str] = {}
        """Error by key for each requested commit record that is damaged."""
        self._cache: dict[str, Record | None] = {}
        self._entries: dict[tuple[str, str, str], list[Entry]] = {}

    @cached_property
    def records(self) -> Mapping[str, Record]:
        """Commit records of all undamaged artifacts in the store, by key."""
        folders = sorted((self.root / "artifacts").glob("*/*"))
        return {folder.name: record for folder in folders if (record := self.find(folder.name))}

    def find(self, key: str) -> Record | None:
        """The commit record of an artifact; None if it is missing or damaged."""
        if key not in self._cache:
            self._cache[key] = self._read(artifact_folder(self.root, key))
        return self._cache[key]

    def _read(self, folder: Path) -> Record | None:
        try:
            file, *folders = map(os.lstat, (folder / MANIFEST, folder, folder.parent))
        except OSError:
            return None
        file_identity = (file.st_ino, file.st_size, file.st_mtime_ns, file.st_ctime_ns)
        try:
            return _read_record_once(folder, (*file_identity, *((each.st_ino, each.st_mode) for each in folders)))
        except DamagedArtifactError as error:
            self.damaged[folder.name] = error.message
            return None
        except OSError as error:
            hint = "look at the store's permissions"
            raise StoreError(f"cannot read {folder / MANIFEST}: {error.strerror}", hint=hint) from error

    def record(self, key: str) -> Record:
        """The commit record of an artifact. Raises DamagedArtifactError or MissingArtifactError."""
        record = self.find(key)
        if key in self.damaged:
            raise DamagedArtifactError(self.damaged[key], hint=REMEDY)
        if record is None:
            raise MissingArtifactError(f"artifact {key} is not in the store", hint=_MISSING)
        return record

    def find_by_id(self, identity: str) -> Record | None:
        """Commit record of the artifact with this id; None if it is missing or was recomputed with another digest."""
        record = self.find(identity.split("@")[0])
        return record if record and record.id == identity else None

    def records_of_phase(self, phase: str = "*") -> list[Record]:
        """Commit records of the artifacts of one phase, or of all phases, sorted by phase and key.

        Raises DamagedArtifactError if a record is damaged.
        """
        records = (self.root / "artifacts").glob(f"{phase}/*/{MANIFEST}")
        return [self.record(path.parent.name) for path in sorted(records)]

    def journal_entries(self, run: str, *, file: str = "journal.jsonl", shelf: str = RUNS) -> list[Entry]:
        """Newest journal entry of each artifact of a run or an evaluation that is in the store.

        Raises StoreError for a damaged artifact, and for a missing artifact unless only an earlier attempt needed it.
        """
        place = (shelf, run, file)
        if place in self._entries:
            return self._entries[place]
        journal = Journal(self.root, run, file=file, shelf=shelf)
        entries = journal.latest()
        newest = max((entry.attempt for entry in entries), default=0)
        missing = [entry for entry in entries if not self.find(entry.key)]
        for entry in missing:
            if entry.key in self.damaged or entry.attempt == newest or journal.read_state().was_finished:
                self.record(entry.key)
        self._entries[place] = [entry for entry in entries if entry not in missing] if missing else entries
        return self._entries[place]

    def paths(self, keys: Iterable[str], table: str) -> list[Path]:
        """Parquet files of one table in these artifacts, after verifying their digests."""
        return verify.verified_paths(self.root, [(self.record(key), f"{table}.parquet") for key in keys])

    def input_ref(self, key: str, name: str) -> ArtifactRef:
        """The artifact that was the input `name` of an artifact.

        Raises StoreError if it had no such input or if the input is not in the store.
        """
        identity = self.record(key).inputs.get(name)
        if identity is None:
            raise StoreError(f"artifact {key} was made from no {name}", hint=f"`infuser show {key}` lists its inputs")
        ref = self.record(identity.split("@")[0]).ref
        if ref.id != identity:
            raise MissingArtifactError(f"artifact {identity} is not in the store: there is {ref.id}", hint=_MISSING)
        return ref


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A run or an evaluation: its state, the artifacts that it holds, and any damage to its records."""

    name: str
    shelf: str
    """Folder of the store with its records: `runs` or `evaluations`."""
    entries: tuple[Entry, ...]
    """Newest journal entry of each artifact, studies included; of a damaged journal, the readable entries."""
    was_finished: bool
    """Whether any attempt completed: only then does a missing artifact count as damage."""
    is_finished: bool
    """Whether the newest attempt completed."""
    is_live: bool
    """Whether a living process is executing it."""
    current: tuple[Entry, ...]
    """Entries of the newest attempt."""
    torn: tuple[str, ...]
    """One text per journal with an incomplete last line: file and line number."""
    damaged: Mapping[str, str]
    """Description of the damage by file, for damaged journals and attempt records."""
    unknown: str
    """Why its artifacts cannot be known: its main record is lost or damaged, or its journal is lost; empty
    otherwise."""

    @property
    def broken(self) -> str:
        """Reason why the list of its artifacts may be incomplete; empty for undamaged records."""
        return self.unknown or next(iter(self.damaged.values()), "")

    @property
    def folder(self) -> str:
        """Folder of its records, relative to the store."""
        return f"{self.shelf}/{self.name}"

    @property
    def keys(self) -> set[str]:
        """Keys of the artifacts in its journals."""
        return {entry.key for entry in self.entries}


def list_holders(root: Path) -> list[Holder]:
    """All runs in the store, sorted by name, including those whose record is missing."""
    return _holders(root, RUNS, runs.RECORD)


def list_evaluations(root: Path) -> list[Holder]:
    """All evaluations in the store, sorted by name. An evaluation holds its artifacts as long as its record exists."""
    return _holders(root, runs.EVALUATIONS, runs.EVALUATION)


def holder_of(root: Path, run: str) -> Holder:
    """Read the state and the journals of the run with this name."""
    return _holder(root, root / RUNS / run, runs.RECORD)


def keys_held_elsewhere(root: Path, own: Holder) -> tuple[set[str], str]:
    """Keys of a run's artifacts that another run or an evaluation also holds.

    The second value is empty, or says why the keys are unknown: damage to the records of another run or evaluation. A
    run's journal lists all inputs of its artifacts, an evaluation's does not. Repeated calls are cheap, because the
    records of a finished run do not change.
    """
    of_runs: set[str] = set()
    of_evaluations: set[str] = set()
    for shelf, record, keys in ((RUNS, runs.RECORD, of_runs), (runs.EVALUATIONS, runs.EVALUATION, of_evaluations)):
        for folder in (root / shelf).glob("*"):
            if folder.is_dir() and folder != root / own.folder:
                files = [file for file in folder.glob("*") if file.name.endswith(_RECORD_FILES)]
                stats = sorted((file.name, file.stat()) for file in files if file.name != runs.METRICS)
                identity = tuple((name, stat.st_ino, stat.st_size, stat.st_ctime_ns) for name, stat in stats)
                other_keys, broken = _read_keys_once(root, folder, record, identity)
                if broken:
                    return set(), f"{shelf}/{folder.name}: {broken}"
                keys |= other_keys
    return own.keys & (of_runs | keys_with_inputs(Catalogue(root), of_evaluations)), ""


@lru_cache(maxsize=10_000)
def _read_keys_once(root: Path, folder: Path, record: str, _: object) -> tuple[frozenset[str], str]:
    """Keys in the journals of a run or evaluation, and its damage; cached by the identity of its files."""
    holder = _holder(root, folder, record)
    return frozenset(holder.keys), holder.broken


def _holders(root: Path, shelf: str, record: str) -> list[Holder]:
    return [_holder(root, folder, record) for folder in sorted((root / shelf).glob("*")) if folder.is_dir()]


def _holder(root: Path, folder: Path, record: str) -> Holder:
    shelf, name = folder.parent.name, folder.name
    main = Journal(root, name, shelf=shelf)
    files = {path.with_suffix(".jsonl").name for kind in ("jsonl", "head") for path in folder.glob(f"*.{kind}")}
    files = {*files, main.path.name} - {runs.METRICS}
    states = {file: Journal(root, name, file=file, shelf=shelf).read_state() for file in sorted(files)}
    main_state = states[main.path.name]
    damaged = {file: f"{folder / file}: {state.damage}" for file, state in states.items() if state.damage}
    try:
        sealed.read(folder / runs.ATTEMPT, run=name)
    except FileNotFoundError:
        if shelf == RUNS and main_state.is_finished:
            damaged[runs.ATTEMPT] = f"{folder / runs.ATTEMPT} is lost"
    except ValueError as error:
        damaged[runs.ATTEMPT] = f"{folder / runs.ATTEMPT}: {error}"
    return Holder(
        name=name,
        shelf=shelf,
        entries=tuple(entry for state in states.values() for entry in newest_entries(state.entries)),
        was_finished=(folder / runs.ATTEMPT).exists()
        or any(state.was_finished for file, state in states.items() if state is main_state or file.endswith(ASIDE)),
        is_finished=main_state.is_finished,
        is_live=lease.is_held(folder),
        current=tuple(
            entry for entry in entries_of_last_attempt(main_state.entries) if entry.attempt >= main_state.attempt
        ),
        torn=tuple(f"{file}: line {state.torn}" for file, state in states.items() if state.torn),
        damaged=damaged,
        unknown=_why_unknown(folder, record, main),
    )


def _why_unknown(folder: Path, record: str, journal: Journal) -> str:
    """Reason why a run's or evaluation's artifacts are unknown: a lost or damaged file; empty if they are known."""
    if not (folder / record).is_file():
        # A run that was refused at its start leaves a folder with only a lock file.
        return f"{folder / record} is lost" if journal.path.exists() and record == runs.RECORD else ""
    try:
        sealed.read(folder / record, **({"name": folder.name} if record == runs.RECORD else {}))
    except ValueError as error:
        return f"{folder / record}: {error}"
    return "" if journal.is_known() else f"{journal.path} is lost"


def keys_with_inputs(catalogue: Catalogue, keys: Iterable[str]) -> set[str]:
    """Keys of these artifacts and of all their direct and indirect inputs; leaves out what is not in the store."""
    reached: set[str] = set()
    queue = list(keys)
    while queue:
        key = queue.pop()
        record = catalogue.find(key)
        if key in reached or record is None:
            continue
        reached.add(key)
        queue += [source.split("@")[0] for source in record.inputs.values()]
    return reached


def held_keys(catalogue: Catalogue, holder: Holder) -> set[str]:
    """Keys of a run's or evaluation's artifacts and of all their direct and indirect inputs."""
    return holder.keys | keys_with_inputs(catalogue, holder.keys)


def checkpoints_of(catalogue: Catalogue, holder: Holder) -> list[tuple[int, Record]]:
    """A run's checkpoints of both roles, each with the number of iterations before it; the anchor (0) comes first."""
    records = filter(None, map(catalogue.find, holder.keys))
    pairs = [(record.iteration + 1, record) for record in records if record.phase in CHECKPOINTS]
    return sorted(pairs, key=lambda pair: (pair[0], pair[1].key))


def gradients_of(catalogue: Catalogue, holder: Holder) -> list[Record]:
    """A run's artifacts that contain a gradient for a later phase."""
    records = filter(None, map(catalogue.find, sorted(holder.keys)))
    return [record for record in records if record.phase in GRADIENTS]


def pruned_keys(catalogue: Catalogue, records: Iterable[Record]) -> list[str]:
    """Keys of the artifacts in `records` from which retention removed files."""
    return [record.key for record in records if pruned.read_removed(artifact_folder(catalogue.root, record.key))]


def checkpoints_at(catalogue: Catalogue, holder: Holder, iteration: int) -> list[Record]:
    """Checkpoints that a run saved after `iteration` iterations. Raises UsageError if there are none."""
    pairs = checkpoints_of(catalogue, holder)
    records = [record for number, record in pairs if number == iteration]
    if not records:
        numbers = sorted({number for number, _ in pairs})
        hint = f"it has them after {numbers[0]} to {numbers[-1]}" if numbers else "it has none yet"
        raise UsageError(f"run {holder.name} has no checkpoint after {iteration} iterations", hint=hint)
    return records
