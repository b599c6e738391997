"""The catalogue of the store: every commit record by key, and the runs that hold each artifact."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from infuser_core.errors import DamagedArtifactError, StoreError
from infuser_core.store import lease, runs
from infuser_core.store.recipe import MANIFEST, ArtifactRef, Record, read_record
from infuser_core.store.runs import Entry, Journal

UPDATES = ("update_solver", "update_generator")
"""Phases that make a checkpoint from another."""
CHECKPOINTS = ("anchor", *UPDATES)
"""Phases whose artifacts are checkpoints."""


class Catalogue:
    """Every committed artifact of a store by key."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.records: dict[str, Record] = {}
        self.damaged: dict[str, str] = {}
        """Keys whose commit record cannot be read, and why."""
        for path in sorted((root / "artifacts").glob(f"*/*/{MANIFEST}"), key=lambda path: path.parent.name):
            try:
                self.records[path.parent.name] = read_record(path.parent)
            except DamagedArtifactError as error:
                self.damaged[path.parent.name] = error.message
            except OSError as error:
                hint = "look at the store's permissions"
                raise StoreError(f"cannot read {path}: {error.strerror}", hint=hint) from error
        self.by_id = {record.id: record for record in self.records.values()}

    def folder(self, key: str) -> Path:
        """Where an artifact lies."""
        return self.root / "artifacts" / self.records[key].phase / key

    def path(self, key: str, table: str) -> Path:
        """The parquet file of one table of an artifact."""
        return self.folder(key) / f"{table}.parquet"

    def input(self, key: str, name: str) -> ArtifactRef:
        """The named input of an artifact. Raises StoreError when it has none or it is gone."""
        found = self.by_id.get(self.records[key].inputs.get(name, ""))
        if found is None:
            raise StoreError(f"artifact {key} has no input {name} in the store", hint="resume the run first")
        return found.ref


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A run and what it holds."""

    name: str
    """Name of the run."""
    entries: tuple[Entry, ...]
    """Newest journal entry of each artifact, studies included."""
    finished: bool
    """Whether some attempt completed: all of it is in the store then, or lost."""
    ended: bool
    """Whether the newest attempt completed, so that nothing is left to do."""
    live: bool
    """Whether a living process executes it."""
    current: tuple[Entry, ...]
    """Entries of the attempt that began last."""
    torn: tuple[str, ...]
    """Journals with unreadable lines, and their numbers."""
    broken: str
    """Why the run's record cannot be read; empty for a sound one."""

    @property
    def keys(self) -> set[str]:
        """Keys of its artifacts."""
        return {entry.key for entry in self.entries}


def holders(root: Path) -> list[Holder]:
    """Every folder of a run, also one whose record is lost, by name."""
    folders = sorted(path for path in runs.runs_folder(root).glob("*") if path.is_dir())
    return [_holder(root, folder) for folder in folders]


def evaluations(root: Path) -> list[Holder]:
    """Every evaluation of a model, by name: its artifacts are held as long as its record is there."""
    found = []
    for folder in sorted(path for path in (root / runs.EVALUATIONS).glob("*") if path.is_dir()):
        journal = Journal(root, folder.name, shelf=runs.EVALUATIONS)
        holder = Holder(
            name=folder.name,
            entries=tuple(journal.latest()),
            finished=journal.was_finished(),
            ended=journal.is_finished(),
            live=lease.is_held(folder),
            current=tuple(journal.newest_attempt()),
            torn=(),
            broken="",
        )
        found.append(holder)
    return found


def _holder(root: Path, folder: Path) -> Holder:
    journals = [Journal(root, folder.name, file=path.name) for path in sorted(folder.glob("*.jsonl"))]
    torn = [f"{journal.path.name}: line {number}" for journal in journals for number in journal.torn()]
    main = Journal(root, folder.name)
    return Holder(
        name=folder.name,
        entries=tuple(entry for journal in journals for entry in journal.latest()),
        finished=main.was_finished(),
        ended=main.is_finished(),
        live=runs.is_held(root, folder.name),
        current=tuple(main.newest_attempt()),
        torn=tuple(torn),
        broken=_broken(root, folder, main),
    )


def _broken(root: Path, folder: Path, journal: Journal) -> str:
    if not (folder / "run.json").is_file():
        # A folder with nothing but a lock is left by a start that was refused.
        return f"{folder / 'run.json'} is lost" if journal.path.exists() else ""
    try:
        runs.read_config(root, folder.name)
    except StoreError as error:
        return error.message
    if (folder / "attempt.json").exists() and not journal.entries():
        return f"{journal.path} is lost, or empty although the run has ended"
    return ""


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
