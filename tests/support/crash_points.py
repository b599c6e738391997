"""What the crash tests and the crash bench share: a small lifecycle, its named points, and the comparison of stores.

A stage passes its points in this order: start, inside (between two batches or optimizer steps), before_commit,
writing (after each table), before_rename, after_rename, journalled. The last two leave a complete artifact.
"""

import hashlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml
from launcher import SmallRun, copy_store

from infuser_core.nano import world
from infuser_core.store import pruned, verify
from infuser_core.store.journal import Journal
from infuser_core.store.recipe import MANIFEST
from infuser_core.store.store import Store
from infuser_core.system import sealed

NANO = "configs/nano.yaml"
POINTS = ("start", "inside", "before_commit", "writing", "before_rename", "after_rename", "journalled")
COMPLETE = ("after_rename", "journalled")
# In the order of the pipeline. Who does not report progress has no point inside; who writes files alone, no table.
# From search to audit there is one artifact per group of topics or books. The nano lab's corpus asks no model about
# headings and compares with no further data: `structure` and the audits of references have tests of their own.
BOOKS = ("questions", "taxonomy", "textbooks", "search", "choose", "download", "sources")
CORPUS = (*BOOKS, "convert", "chunk", "judge", "audit", "pool")
FIRST = ("anchor", "respond", "validate", "rollout_dev", "dev_gradient", "generate_questions")
SECOND = ("rollout_questions", "score_influence", "update_generator", "update_solver")
LAST = ("select", "leakage", "evaluate")
PHASES = (*CORPUS, *FIRST, *SECOND, *LAST)
_SILENT = ("questions", "taxonomy", "textbooks", "choose", "sources", "pool", "anchor", "select", "leakage")
_NO_TABLES = ("textbooks", "anchor")
# Answers are saved piece by piece, and a reference is scanned shard by shard.
_PARTS = {"respond": ("before_piece", "after_piece"), "audit": ("shard",)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A named point that a stage passes."""

    phase: str
    """Phase of the stage."""
    kind: str
    """One of POINTS, or a part of a stage's own work."""

    @property
    def name(self) -> str:
        """As the environment variable wants it."""
        return f"{self.phase}:{self.kind}"

    @property
    def complete(self) -> bool:
        """Whether a process killed here leaves the stage's artifact behind."""
        return self.kind in COMPLETE


def begun(run: SmallRun, store: Path) -> Path:
    """A store that holds the small run's corpus alone."""
    store.mkdir()
    return copy_store(run.root, store, without=tuple(phase for phase in PHASES if phase not in CORPUS))


def overlay(folder: Path, iterations: int) -> Path:
    """An overlay that makes the nano run small but complete: several optimizer steps, selection and a benchmark."""
    exam = [
        {"question_id": q.question_id, "question_text": q.text, "choices": q.choices, "ground_truth": q.answer}
        for q in world.draw_questions("test", world.TARGET, 8, 0)
    ]
    (folder / "exam.json").write_text(json.dumps(exam))
    values = {
        "data": {"dev": {"size": 8}, "validation": {"size": 16}},
        "corpus": {"group": 3},
        "cotrain": {
            "iterations": iterations,
            "documents": 2,
            "group_size": 4,
            "validate_every": 1,
            "generator": {"minibatch": 1},
            "solver": {"minibatch": 2},
        },
        "evaluate": {"benchmarks": [{"name": "released", "label": "exam", "path": str(folder / "exam.json")}]},
    }
    path = folder / f"small-{iterations}.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


def passed(listing: Path) -> list[Point]:
    """The distinct points of a run, in the order of their first pass."""
    named = listing.read_text().split()
    # Files of a checkpoint lie between the points of the stage that writes it.
    names = dict.fromkeys(name for name in named if not name.startswith("checkpoint:"))
    return [Point(phase=phase, kind=kind) for phase, _, kind in (name.partition(":") for name in names)]


def content(root: Path, run: str) -> dict[str, str]:
    """Key of each artifact of the run to a digest of its bytes as they lie on the disk, checkpoints included.

    Tables of times and addresses differ by their nature, as does the record of when and where. A file that retention
    removed counts by its recorded digest: a whole artifact and a thinned one have the same content.
    """
    store = Store(root)
    found = {}
    for entry in Journal(root, run).latest():
        folder = store.folder(entry.key)
        record = json.loads((folder / MANIFEST).read_text())
        digest = hashlib.sha256(entry.digest.encode())
        files = {name: removed.sha256 for name, removed in pruned.read_removed(folder).items()}
        # A note of what was pruned says when.
        noted = (MANIFEST, pruned.FILE)
        for path in (path for path in folder.rglob("*") if path.is_file() and path.name not in noted):
            if path.name not in record["volatile"]:
                files[path.relative_to(folder).as_posix()] = sealed.digest_of_file(path)
        digest.update(sealed.canonical(files).encode())
        found[entry.key] = digest.hexdigest()
    return found


def mismatches(reference: dict[str, str], found: dict[str, str]) -> list[str]:
    """Keys that only one of two runs has, or whose bytes differ."""
    return sorted(key for key in reference.keys() | found.keys() if reference.get(key) != found.get(key))


def orphans(root: Path) -> Iterator[str]:
    """Whatever a store must not hold: half an artifact, an input that is gone, work that nobody does, drafts.

    Raises DamagedArtifactError for a file that is not what it was; one that was pruned may be missing.
    """
    store = Store(root)
    folders = [folder for folder in (root / "artifacts").glob("*/*") if folder.is_dir()]
    whole = [folder for folder in folders if (folder / MANIFEST).is_file()]
    yield from (f"half an artifact: {folder}" for folder in folders if folder not in whole)
    refs = store.refs()
    known = {ref.id for ref in refs}
    for ref in refs:
        record, gone = store.manifest(ref), pruned.read_removed(store.folder(ref.key))
        inputs = record.recipe["inputs"].values()
        yield from (f"{ref.key} was made from {each}, which is gone" for each in inputs if each not in known)
        verify.verified_paths(root, [(record, name) for name in record.files if name not in gone])
    for place in (".staging", ".partial"):
        yield from (f"left behind: {path}" for path in (root / place).glob("*"))
    yield from (f"left behind: {path}" for path in (root / "runs").glob("*/*.tmp"))


def repeated(root: Path, run: str) -> list[str]:
    """Artifacts that were computed more than once, by the journal of all attempts."""
    ran = [entry.key for entry in Journal(root, run).entries() if entry.state == "ran"]
    return sorted({key for key in ran if ran.count(key) > 1})


def forget_newest(root: Path, phase: str, before: set[Path]) -> None:
    """Take away the artifacts of a phase that were not there before."""
    for folder in set((root / "artifacts" / phase).glob("*")) - before:
        shutil.rmtree(folder)


def points_of(phase: str) -> list[Point]:
    """The points that a phase passes, in order."""
    kinds = [
        kind
        for kind in POINTS
        if not (kind == "inside" and phase in _SILENT) and not (kind == "writing" and phase in _NO_TABLES)
    ]
    return [Point(phase=phase, kind=kind) for kind in (*kinds, *_PARTS.get(phase, ()))]
