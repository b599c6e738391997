"""The catalogue of the store: every commit record, read once and remembered, and the runs that hold each artifact.

The store's folders are the truth. A store with many artifacts keeps the records' essence in one append-only file,
`index/records.tsv`, because opening ten thousand small files takes longer than a person waits. The file may be lost,
torn or out of date at any time: a line counts only if it is whole, and for the very folder that it was written about.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infuser_core.errors import StoreError
from infuser_core.store import lease, runs
from infuser_core.store.recipe import ArtifactRef
from infuser_core.store.runs import Entry, Journal

UPDATES = ("update_solver", "update_generator")
CHECKPOINTS = ("anchor", *UPDATES)
"""Phases whose artifacts are checkpoints."""
FILE = Path("index") / "records.tsv"
FORMAT = "2"
MANIFEST = "artifact.json"
END = "."
"""Last field of a line: torn ones lack it."""
WORTH_KEEPING = 200
"""Unknown artifacts above which the file is written: small stores need none."""


class Record:
    """Catalogue entry of one artifact. Most are only counted: the greater part is decoded when asked for."""

    __slots__ = ("_facts", "_folder", "_tables", "_text", "digest", "iteration", "key", "phase")

    def __init__(self, *, folder: str, key: str, digest: str, iteration: int, tables: str, text: str) -> None:
        self.key = key
        self.phase = key.rpartition("-")[0]
        self.digest = digest
        self.iteration = iteration
        self._folder = folder
        self._tables = tables
        self._text = text
        self._facts: dict[str, Any] | None = None

    @property
    def tables(self) -> list[str]:
        """Names of its tables."""
        return self._tables.split(",") if self._tables else []

    @property
    def ref(self) -> ArtifactRef:
        """Identity."""
        return ArtifactRef(kind=self.phase, key=self.key, digest=self.digest)

    @property
    def id(self) -> str:
        """Artifact id."""
        return self.ref.id

    @property
    def version(self) -> int:
        """VERSION of the phase's code."""
        return int(self._fact("version"))

    @property
    def seed(self) -> int:
        """Run seed; 0 for phases that draw nothing."""
        return int(self._fact("seed"))

    @property
    def config(self) -> str:
        """The phase's sub-configuration, JSON with sorted keys."""
        return str(self._fact("config"))

    @property
    def inputs(self) -> Mapping[str, str]:
        """Input name to artifact id."""
        return dict(self._fact("inputs"))

    @property
    def rows(self) -> Mapping[str, int]:
        """Table name to number of rows."""
        return dict(self._fact("rows"))

    @property
    def summary(self) -> Mapping[str, Any]:
        """The phase's summary."""
        return dict(self._fact("summary"))

    @property
    def label(self) -> str:
        """Benchmark or part that tells it from others of its phase and iteration; empty for most."""
        return str(self.summary.get("benchmark") or self.summary.get("label") or self.summary.get("part") or "")

    @property
    def num_bytes(self) -> int:
        """Size of all files, bytes."""
        return int(self._fact("bytes"))

    @property
    def seconds(self) -> float:
        """Time the phase took, seconds."""
        return float(self._fact("seconds"))

    @property
    def machine(self) -> Mapping[str, Mapping[str, Any]]:
        """By engine, what it computed on and how; empty where none was used, and for records of older versions."""
        return dict(self._fact("machine"))

    @property
    def created(self) -> str:
        """When it was committed, ISO 8601."""
        return str(self._fact("created"))

    def _fact(self, name: str) -> Any:
        if self._facts is None:
            try:
                self._facts = dict(json.loads(self._text))
            except ValueError:
                # The remembered line is garbled: the commit record itself is not.
                self._facts = _essence(Path(self._folder) / MANIFEST)
        return self._facts[name]


class Catalogue:
    """Every committed artifact of a store by key."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.damaged: dict[str, str] = {}
        """Keys whose commit record cannot be read, and why."""
        self.records = _load(root, self.damaged)
        self.by_id = {f"{key}@{record.digest[:16]}": record for key, record in self.records.items()}

    def folder(self, key: str) -> Path:
        """Where an artifact lies."""
        return self.root / "artifacts" / self.records[key].phase / key

    def path(self, key: str, table: str) -> Path:
        """The parquet file of one table of an artifact."""
        return self.folder(key) / f"{table}.parquet"


def _load(root: Path, damaged: dict[str, str]) -> dict[str, Record]:
    known = _remembered(root / FILE)
    found: dict[str, Record] = {}
    fresh: list[str] = []
    for folder, key, mark in _folders(root):
        line = known.get((key, mark))
        if line is None:
            line = _read(folder, mark, damaged)
            if line is None:
                continue
            fresh.append("\t".join(line))
        _, _, _, digest, iteration, held, text, _ = line
        found[key] = Record(folder=folder, key=key, digest=digest, iteration=int(iteration), tables=held, text=text)
    if len(fresh) >= WORTH_KEEPING:
        _remember(root / FILE, fresh)
    return {key: found[key] for key in sorted(found)}


def _folders(root: Path) -> Iterator[tuple[str, str, str]]:
    """Folders of artifacts with their keys, each with a mark that another folder in its place would not have."""
    with suppress(FileNotFoundError), os.scandir(root / "artifacts") as kinds:
        for kind in kinds:
            if not kind.is_dir():
                continue
            with os.scandir(kind.path) as entries:
                for entry in entries:
                    facts = entry.stat()
                    yield entry.path, entry.name, f"{facts.st_ino}:{facts.st_mtime_ns}"


def _remembered(path: Path) -> dict[tuple[str, str], list[str]]:
    """Whole lines of the file by key and mark; torn ones and those of another format are passed over."""
    try:
        text = path.read_bytes().decode("ascii", errors="replace")
    except FileNotFoundError:
        return {}
    lines = (line.split("\t") for line in text.split("\n"))
    return {
        (line[1], line[2]): line
        for line in lines
        if len(line) == 8 and line[0] == FORMAT and line[7] == END and line[4].lstrip("-").isdigit()
    }


def torn_lines(root: Path) -> int:
    """How many lines of the file are passed over because they are not whole."""
    path = root / FILE
    lines = [line.split(b"\t") for line in path.read_bytes().split(b"\n") if line.strip()] if path.is_file() else []
    return sum(len(line) != 8 or (line[0], line[-1]) != (FORMAT.encode(), END.encode()) for line in lines)


def _remember(path: Path, lines: list[str]) -> None:
    """One write, so that writers at the same time do not mix lines. A store that cannot be written goes without."""
    with suppress(OSError):
        path.parent.mkdir(exist_ok=True)
        with path.open("ab", buffering=0) as handle:
            # A kill may have torn the last line; the next one must not be glued to it.
            handle.write(("\n" + "\n".join(lines) + "\n").encode("ascii"))


def _read(folder: str, mark: str, damaged: dict[str, str]) -> list[str] | None:
    """The line about a commit record; None where the folder holds none, or a damaged one."""
    path = Path(folder) / MANIFEST
    try:
        facts = _essence(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}", hint="look at the store's permissions") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        damaged[path.parent.name] = f"the commit record {path} is damaged: {error}"
        return None
    text = json.dumps(facts, separators=(",", ":"))
    return [
        FORMAT,
        path.parent.name,
        mark,
        facts["digest"],
        str(facts["iteration"]),
        ",".join(facts["rows"]),
        text,
        END,
    ]


def _essence(path: Path) -> dict[str, Any]:
    record = json.loads(path.read_bytes())
    recipe = record["recipe"]
    return {
        "digest": str(record["digest"]),
        "iteration": int(recipe["iteration"]),
        "version": recipe["version"],
        "seed": recipe["seed"],
        "config": json.dumps(recipe["config"], sort_keys=True, separators=(",", ":")),
        "inputs": recipe["inputs"],
        "rows": record["rows"],
        "summary": record["summary"],
        "bytes": sum(int(facts["bytes"]) for facts in record["files"].values()),
        "seconds": record["seconds"],
        "created": record.get("created", ""),
        "machine": record.get("machine", {}),
    }


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


def held_keys(catalogue: Catalogue, holder: Holder) -> set[str]:
    """Keys of the run's artifacts, and of everything they were made from."""
    return holder.keys | with_inputs(catalogue, holder.keys)


def checkpoints(catalogue: Catalogue, holder: Holder) -> list[tuple[int, Record]]:
    """The run's checkpoints of both roles with the iterations behind each, the anchor (0) first."""
    found = [catalogue.records[key] for key in holder.keys if key in catalogue.records]
    chain = [(record.iteration + 1, record) for record in found if record.phase in CHECKPOINTS]
    return sorted(chain, key=lambda pair: (pair[0], pair[1].key))
