"""Which runs hold which artifacts, by their journals: what a run holds is what its last complete attempt touched."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from infuser_core import runs
from infuser_core.errors import StoreError
from infuser_core.lineage.index import Catalogue, Record
from infuser_core.runs import Entry, Journal

_ROLES = ("solver", "generator")


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
    if not journal.path.exists() and (folder / "attempt.json").exists():
        return f"{journal.path} is lost"
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


def checkpoints(catalogue: Catalogue, holder: Holder, *roles: str) -> list[tuple[int, Record]]:
    """The run's checkpoints of some roles, or of both, with the iterations behind each, the anchor (0) first."""
    phases = ("anchor", *(f"update_{role}" for role in roles or _ROLES))
    found = [catalogue.records[key] for key in holder.keys if key in catalogue.records]
    chain = [(record.iteration + 1, record) for record in found if record.phase in phases]
    return sorted(chain, key=lambda pair: (pair[0], pair[1].key))
