"""The catalogue of the store: commit records by key, and the runs that hold each artifact."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

from infuser_core.config.phase_table import CHECKPOINTS, GRADIENTS
from infuser_core.errors import DamagedArtifactError, MissingArtifactError, StoreError, UsageError
from infuser_core.store import lease, pruned, runs, verify
from infuser_core.store.journal import ASIDE, RUNS, Entry, Journal, Look, last_of, newest_of
from infuser_core.store.recipe import MANIFEST, REMEDY, ArtifactRef, Record, artifact_folder, read_record
from infuser_core.system import sealed

_TELLING = (".jsonl", ".head", runs.RECORD, runs.EVALUATION, runs.ATTEMPT)
_LOST = "`infuser doctor` names the run that holds it and the command that computes it again"


@lru_cache(maxsize=100_000)
def _record(folder: Path, _: object) -> Record:
    """A commit record, read once per process and identity of its file and folders: a server builds many catalogues."""
    return read_record(folder)


def _seen(folder: Path) -> tuple[int, ...]:
    """Identity of a commit record, and of the folders by which it is reached. Raises OSError where there is none."""
    record, places = os.lstat(folder / MANIFEST), [os.lstat(place) for place in (folder, folder.parent)]
    changed = (record.st_ino, record.st_size, record.st_mtime_ns, record.st_ctime_ns)
    return (*changed, *(fact for place in places for fact in (place.st_ino, place.st_mode)))


class Catalogue:
    """Commit records of a store by key, each read when it is asked for: those of hundreds of runs take seconds."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.damaged: dict[str, str] = {}
        """Keys that were asked for and whose commit record cannot be read, and why."""
        self._asked: dict[str, Record | None] = {}

    @cached_property
    def records(self) -> Mapping[str, Record]:
        """Every artifact of the store by key, but for the damaged ones."""
        folders = sorted((self.root / "artifacts").glob("*/*"))
        return {folder.name: record for folder in folders if (record := self.find(folder.name))}

    def find(self, key: str) -> Record | None:
        """The commit record of an artifact; None where there is none, or a damaged one."""
        if key not in self._asked:
            self._asked[key] = self._read(artifact_folder(self.root, key))
        return self._asked[key]

    def _read(self, folder: Path) -> Record | None:
        try:
            seen = _seen(folder)
        except OSError:
            return None
        try:
            return _record(folder, seen)
        except DamagedArtifactError as error:
            self.damaged[folder.name] = error.message
            return None
        except OSError as error:
            hint = "look at the store's permissions"
            raise StoreError(f"cannot read {folder / MANIFEST}: {error.strerror}", hint=hint) from error

    def record(self, key: str) -> Record:
        """The commit record of an artifact that must be there, and must be readable.

        Raises DamagedArtifactError for one that cannot be read, MissingArtifactError for none.
        """
        found = self.find(key)
        if key in self.damaged:
            raise DamagedArtifactError(self.damaged[key], hint=REMEDY)
        if found is None:
            raise MissingArtifactError(f"artifact {key} is not in the store", hint=_LOST)
        return found

    def of_id(self, identity: str) -> Record | None:
        """The artifact of an id; None where it is gone, or computed again with another digest."""
        found = self.find(identity.split("@")[0])
        return found if found and found.id == identity else None

    def of_phase(self, phase: str = "*") -> list[Record]:
        """Every artifact of a phase, or of all, by key. Raises DamagedArtifactError if the record of one is damaged."""
        records = (self.root / "artifacts").glob(f"{phase}/*/{MANIFEST}")
        return [self.record(path.parent.name) for path in sorted(records)]

    def held(self, run: str, *, file: str = "journal.jsonl", shelf: str = RUNS) -> list[Entry]:
        """Journal entries of a run's or evaluation's artifacts; only what former attempts alone knew may be gone.

        Raises StoreError where one is lost or damaged.
        """
        journal = Journal(self.root, run, file=file, shelf=shelf)
        found = journal.latest()
        newest = max((entry.attempt for entry in found), default=0)
        lost = [entry for entry in found if not self.find(entry.key)]
        for entry in lost:
            if entry.key in self.damaged or entry.attempt == newest or journal.look().was_finished:
                self.record(entry.key)
        return [entry for entry in found if entry not in lost]

    def paths(self, keys: Iterable[str], table: str) -> list[Path]:
        """The parquet files of one table of some artifacts, their digests checked."""
        return verify.sound(self.root, [(self.record(key), f"{table}.parquet") for key in keys])

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
        for folder in (root / shelf).glob("*"):
            if folder.is_dir() and folder != root / own.folder:
                found, broken = _claims(root, folder, record, _identity(folder))
                if broken:
                    return set(), f"{shelf}/{folder.name}: {broken}"
                keys |= found
    return own.keys & (held | with_inputs(Catalogue(root), evaluated)), ""


def _identity(folder: Path) -> tuple[tuple[str, int, int, int], ...]:
    """Identity of what tells of a run: by name, its record's and its journals' files."""
    told = [each for each in folder.glob("*") if each.name.endswith(_TELLING) and each.name != runs.METRICS]
    found = [(each.name, each.stat()) for each in told]
    return tuple(sorted((name, seen.st_ino, seen.st_size, seen.st_ctime_ns) for name, seen in found))


@lru_cache(maxsize=10_000)
def _claims(root: Path, folder: Path, record: str, _: object) -> tuple[frozenset[str], str]:
    """Keys that a run's or evaluation's journals name, and what is broken; read once per process and identity."""
    found = _holder(root, folder, record)
    return frozenset(found.keys), found.broken


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
        record = catalogue.find(key)
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
    found = filter(None, map(catalogue.find, holder.keys))
    chain = [(record.iteration + 1, record) for record in found if record.phase in CHECKPOINTS]
    return sorted(chain, key=lambda pair: (pair[0], pair[1].key))


def gradients(catalogue: Catalogue, holder: Holder) -> list[Record]:
    """The run's artifacts with a gradient that was kept for a later phase."""
    found = filter(None, map(catalogue.find, sorted(holder.keys)))
    return [record for record in found if record.phase in GRADIENTS]


def thinned(catalogue: Catalogue, records: Iterable[Record]) -> list[str]:
    """Keys of those artifacts of which something was removed."""
    return [record.key for record in records if pruned.read(artifact_folder(catalogue.root, record.key))]


def checkpoints_at(catalogue: Catalogue, holder: Holder, iteration: int) -> list[Record]:
    """The run's checkpoints after so many iterations. Raises UsageError when it has none there."""
    known = checkpoints(catalogue, holder)
    found = [record for number, record in known if number == iteration]
    if not found:
        numbers = sorted({number for number, _ in known})
        hint = f"it has them after {numbers[0]} to {numbers[-1]}" if numbers else "it has none yet"
        raise UsageError(f"run {holder.name} has no checkpoint after {iteration} iterations", hint=hint)
    return found
