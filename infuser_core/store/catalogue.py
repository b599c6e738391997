"""The catalogue of the store: every commit record by key, and the runs that hold each artifact."""

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from infuser_core import sealed
from infuser_core.errors import DamagedArtifactError, MissingArtifactError, StoreError, UsageError
from infuser_core.store import lease, pruned, runs, verify
from infuser_core.store.journal import ASIDE, RUNS, Entry, Journal, Look, last_of, newest_of
from infuser_core.store.recipe import MANIFEST, REMEDY, ArtifactRef, Record, read_record

UPDATES = ("update_solver", "update_generator")
"""Phases that make a checkpoint from another."""
CHECKPOINTS = ("anchor", *UPDATES)
"""Phases whose artifacts are checkpoints."""
GRADIENTS = ("dev_gradient", "score_influence")
"""Phases that leave a gradient for a later phase of their iteration."""
_TELLING = (".jsonl", ".head", runs.RECORD, runs.EVALUATION, runs.ATTEMPT)
_LOST = "`infuser doctor` names the run that holds it and the command that computes it again"


@lru_cache(maxsize=100_000)
def _record(folder: str, identity: tuple[int, ...]) -> Record:
    """A commit record, read once per process and identity of its file and folder: a server builds many catalogues."""
    return read_record(Path(folder))


def _folders(root: Path, keys: Iterable[str] | None) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """Key, folder and identity of the folder of these artifacts, or of every one."""
    if keys is None:
        for phase in _inside(root / "artifacts"):
            for folder in _inside(phase):
                yield folder.name, folder.path, (folder.inode(), folder.is_symlink(), phase.is_symlink())
        return
    for key in keys:
        place = root / "artifacts" / key.rpartition("-")[0]
        with suppress(OSError):
            found = os.lstat(place / key)
            yield key, f"{place}/{key}", (found.st_ino, stat.S_ISLNK(found.st_mode), place.is_symlink())


def _committed(root: Path, keys: Iterable[str] | None) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """Key, folder and identity of those that have a commit record."""
    for key, folder, place in _folders(root, keys):
        try:
            found = os.lstat(f"{folder}/{MANIFEST}")
        except OSError:
            continue
        yield key, folder, (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns, *place)


def _inside(folder: Path | os.DirEntry[str]) -> list[os.DirEntry[str]]:
    try:
        return list(os.scandir(folder))
    except OSError:
        return []


class Catalogue:
    """Every committed artifact of a store by key; with `keys`, these alone."""

    def __init__(self, root: Path, keys: Iterable[str] | None = None) -> None:
        self.root = root
        self.records: dict[str, Record] = {}
        self.damaged: dict[str, str] = {}
        """Keys whose commit record cannot be read, and why."""
        for key, folder, identity in sorted(_committed(root, keys)):
            try:
                self.records[key] = _record(folder, identity)
            except DamagedArtifactError as error:
                self.damaged[key] = error.message
            except OSError as error:
                hint = "look at the store's permissions"
                raise StoreError(f"cannot read {folder}/{MANIFEST}: {error.strerror}", hint=hint) from error
        self.by_id = {record.id: record for record in self.records.values()}

    def folder(self, key: str) -> Path:
        """Folder of an artifact."""
        return self.root / "artifacts" / self.records[key].phase / key

    def record(self, key: str) -> Record:
        """The commit record of an artifact that must be there, and must be readable.

        Raises DamagedArtifactError for one that cannot be read, MissingArtifactError for none.
        """
        if key in self.damaged:
            raise DamagedArtifactError(self.damaged[key], hint=REMEDY)
        if key not in self.records:
            raise MissingArtifactError(f"artifact {key} is not in the store", hint=_LOST)
        return self.records[key]

    def of(self, phase: str) -> list[Record]:
        """Every artifact of a phase, the oldest first. Raises DamagedArtifactError where one's record is damaged."""
        known = [self.record(key) for key in (*self.damaged, *self.records) if key.rpartition("-")[0] == phase]
        return sorted(known, key=lambda record: (record.created, record.key))

    def held(self, run: str, *, file: str = "journal.jsonl", shelf: str = RUNS) -> list[Entry]:
        """Journal entries of a run's or evaluation's artifacts; only what former attempts alone knew may be gone.

        Raises StoreError where one is lost or damaged.
        """
        journal = Journal(self.root, run, file=file, shelf=shelf)
        found = journal.latest()
        newest = max((entry.attempt for entry in found), default=0)
        lost = [entry for entry in found if entry.key not in self.records]
        for entry in lost:
            if entry.key in self.damaged or entry.attempt == newest or journal.look().was_finished:
                self.record(entry.key)
        return [entry for entry in found if entry not in lost]

    def paths(self, keys: Iterable[str], table: str) -> list[Path]:
        """The parquet files of one table of some artifacts, their digests checked."""
        return verify.sound(self.root, [(self.records[key], f"{table}.parquet") for key in keys])

    def input(self, key: str, name: str) -> ArtifactRef:
        """The named input of an artifact. Raises StoreError when it has none or it is gone."""
        identity = self.record(key).inputs.get(name)
        if identity is None:
            raise StoreError(f"artifact {key} was made from no {name}", hint=f"`infuser show {key}` lists its inputs")
        found = self.record(identity.split("@")[0]).ref
        if found.id != identity:
            raise MissingArtifactError(f"artifact {identity} is not in the store: there is {found.id}", hint=_LOST)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A run and what it holds."""

    name: str
    """Name of the run."""
    shelf: str
    """Folder of the store with its record: of runs or of evaluations."""
    entries: tuple[Entry, ...]
    """Newest journal entry of each artifact, studies included; of a damaged journal, what can be read of it."""
    finished: bool
    """Whether some attempt completed: all of it is in the store then, or lost."""
    ended: bool
    """Whether the newest attempt completed, so that nothing is left to do."""
    live: bool
    """Whether a living process executes it."""
    current: tuple[Entry, ...]
    """Entries of the attempt that began last."""
    torn: tuple[str, ...]
    """Journals with a line that a kill tore, and its number."""
    damaged: Mapping[str, str]
    """Damage by file of its record that can be made anew; empty where there is none."""
    lost: str
    """Why nobody knows what it is; empty where somebody does."""

    @property
    def broken(self) -> str:
        """Reason for which it is unknown what it holds; empty for a sound record."""
        return self.lost or next(iter(self.damaged.values()), "")

    @property
    def folder(self) -> str:
        """The folder of its record below the store."""
        return f"{self.shelf}/{self.name}"

    @property
    def keys(self) -> set[str]:
        """Keys of its artifacts."""
        return {entry.key for entry in self.entries}


def holders(root: Path) -> list[Holder]:
    """Every folder of a run, also one whose record is lost, by name."""
    return _holders(root, RUNS, runs.RECORD)


def evaluations(root: Path) -> list[Holder]:
    """Every evaluation of a model, by name: its artifacts are held as long as its record is there."""
    return _holders(root, runs.EVALUATIONS, runs.EVALUATION)


def holder_of(root: Path, run: str) -> Holder:
    """One run."""
    return _holder(root, root / RUNS / run, runs.RECORD)


def held_elsewhere(root: Path, own: Holder) -> tuple[set[str], str]:
    """Keys of a run's artifacts that another run or an evaluation holds; and why that is not known, empty where it is.

    A run's journal names all that its artifacts were made from, an evaluation's does not. Costs little again and again:
    the record of a run that is over does not change.
    """
    held: set[str] = set()
    evaluated: set[str] = set()
    for shelf, record, keys in ((RUNS, runs.RECORD, held), (runs.EVALUATIONS, runs.EVALUATION, evaluated)):
        for folder in _inside(root / shelf):
            if folder.is_dir() and (shelf, folder.name) != (own.shelf, own.name):
                found, broken = _claims(root, shelf, folder.name, record, _identity(folder.path))
                if broken:
                    return set(), f"{shelf}/{folder.name}: {broken}"
                keys |= found
    if evaluated:
        held |= with_inputs(Catalogue(root, own.keys | evaluated), evaluated)
    return held & own.keys, ""


def _identity(folder: str) -> tuple[tuple[str, int, int, int], ...]:
    """Identity of what tells of a run: by name, its record's and its journals' files."""
    told = [each for each in _inside(Path(folder)) if each.name.endswith(_TELLING) and each.name != runs.METRICS]
    found = [(each.name, each.inode(), each.stat()) for each in told]
    return tuple(sorted((name, inode, seen.st_size, seen.st_ctime_ns) for name, inode, seen in found))


@lru_cache(maxsize=10_000)
def _claims(root: Path, shelf: str, name: str, record: str, _: object) -> tuple[frozenset[str], str]:
    """Keys that a run's or evaluation's journals name, and what is broken; read once per process and identity."""
    found = _holder(root, root / shelf / name, record)
    return frozenset(found.keys), found.broken


def evaluation(root: Path, name: str) -> Holder | None:
    """One evaluation of a model; None where there is none of this name."""
    folders = (root / runs.EVALUATIONS).glob("*")
    return next((_holder(root, each, runs.EVALUATION) for each in folders if each.name == name and each.is_dir()), None)


def _holders(root: Path, shelf: str, record: str) -> list[Holder]:
    return [_holder(root, folder, record) for folder in sorted((root / shelf).glob("*")) if folder.is_dir()]


def _holder(root: Path, folder: Path, record: str) -> Holder:
    shelf, name = folder.parent.name, folder.name
    main = Journal(root, name, shelf=shelf)
    files = {path.with_suffix(".jsonl").name for kind in ("jsonl", "head") for path in folder.glob(f"*.{kind}")}
    files = {*files, main.path.name} - {runs.METRICS}
    seen = {file: Journal(root, name, file=file, shelf=shelf).look() for file in sorted(files)}
    own = seen[main.path.name]
    return Holder(
        name=name,
        shelf=shelf,
        entries=tuple(entry for look in seen.values() for entry in newest_of(look.entries)),
        finished=(folder / runs.ATTEMPT).exists()
        or any(look.was_finished for file, look in seen.items() if look is own or file.endswith(ASIDE)),
        ended=own.ended,
        live=lease.is_held(folder),
        current=tuple(entry for entry in last_of(own.entries) if entry.attempt >= own.attempt),
        torn=tuple(f"{file}: line {look.torn}" for file, look in seen.items() if look.torn),
        damaged=_damaged(folder, seen),
        lost=_lost(folder, record, main),
    )


def _damaged(folder: Path, seen: Mapping[str, Look]) -> dict[str, str]:
    found = {file: f"{folder / file}: {look.damage}" for file, look in seen.items() if look.damage}
    try:
        sealed.read(folder / runs.ATTEMPT, run=folder.name)
    except FileNotFoundError:
        if folder.parent.name == RUNS and seen["journal.jsonl"].ended:
            found[runs.ATTEMPT] = f"{folder / runs.ATTEMPT} is lost"
    except ValueError as error:
        found[runs.ATTEMPT] = f"{folder / runs.ATTEMPT}: {error}"
    return found


def _lost(folder: Path, record: str, journal: Journal) -> str:
    """Reason for which a folder's contents cannot be known: its record is lost, or all that told of its attempts."""
    if not (folder / record).is_file():
        # A folder with nothing but a lock is left by a start that was refused.
        return f"{folder / record} is lost" if journal.path.exists() and record == runs.RECORD else ""
    try:
        sealed.read(folder / record, **({"name": folder.name} if record == runs.RECORD else {}))
    except ValueError as error:
        return f"{folder / record}: {error}"
    return "" if journal.is_known() else f"{journal.path} is lost"


def with_inputs(catalogue: Catalogue, keys: Iterable[str]) -> set[str]:
    """These artifacts and everything they were made from, as far as it is in the store."""
    reached: set[str] = set()
    ahead = list(keys)
    while ahead:
        key = ahead.pop()
        record = catalogue.records.get(key)
        if key in reached or record is None:
            continue
        reached.add(key)
        ahead += [source.split("@")[0] for source in record.inputs.values()]
    return reached


def held_keys(catalogue: Catalogue, holder: Holder) -> set[str]:
    """Keys of the run's artifacts, and of everything they were made from."""
    return holder.keys | with_inputs(catalogue, holder.keys)


def checkpoints(catalogue: Catalogue, holder: Holder) -> list[tuple[int, Record]]:
    """The run's checkpoints of both roles with the iterations behind each, the anchor (0) first."""
    found = [catalogue.records[key] for key in holder.keys if key in catalogue.records]
    chain = [(record.iteration + 1, record) for record in found if record.phase in CHECKPOINTS]
    return sorted(chain, key=lambda pair: (pair[0], pair[1].key))


def gradients(catalogue: Catalogue, holder: Holder) -> list[Record]:
    """The run's artifacts with a gradient that was kept for a later phase."""
    found = [catalogue.records[key] for key in sorted(holder.keys) if key in catalogue.records]
    return [record for record in found if record.phase in GRADIENTS]


def thinned(catalogue: Catalogue, records: Iterable[Record]) -> list[str]:
    """Keys of those artifacts of which something was removed."""
    return [record.key for record in records if pruned.read(catalogue.folder(record.key))]


def checkpoints_at(catalogue: Catalogue, holder: Holder, iteration: int) -> list[Record]:
    """The run's checkpoints after so many iterations. Raises UsageError when it has none there."""
    known = checkpoints(catalogue, holder)
    found = [record for number, record in known if number == iteration]
    if not found:
        numbers = sorted({number for number, _ in known})
        hint = f"it has them after {numbers[0]} to {numbers[-1]}" if numbers else "it has none yet"
        raise UsageError(f"run {holder.name} has no checkpoint after {iteration} iterations", hint=hint)
    return found
