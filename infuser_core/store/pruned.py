"""Files that retention removed from an artifact on purpose: `pruned.json` beside its commit record.

The record is written before the first file goes and taken away after the last one is back, so at any moment a file of
the artifact is there, or listed here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from infuser_core.config.phase_table import GRADIENT, MOMENTS, WEIGHTS
from infuser_core.errors import DamagedArtifactError, PrunedError
from infuser_core.store import adapter_files as adapters
from infuser_core.system import fault_points as faults
from infuser_core.system import sealed
from infuser_core.system.durable import fsync

FILE = "pruned.json"
FORMAT = 1
PARTS: Mapping[str, tuple[str, ...]] = {
    MOMENTS: ("optimizer*",),
    WEIGHTS: ("model*.safetensors", "model.safetensors.index.json", adapters.WEIGHTS),
    GRADIENT: ("gradient.safetensors", "solver_gradient.safetensors"),
}
"""Files relative to their artifact's folder: of a checkpoint what only training needs and what sampling needs too, and
gradients that one phase leaves for another of its iteration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """One file that is gone on purpose."""

    file: str
    """Name below the artifact's folder."""
    part: str
    """moments, weights or gradient."""
    sha256: str
    """Digest of its content, hex, as in the commit record."""
    bytes: int
    """Its size."""
    rule: str
    """Why it was not kept."""
    at: str
    """Local time of the removal, ISO 8601."""


def bytes_of(files: Mapping[str, Mapping[str, Any]], *parts: str) -> int:
    """Bytes that these parts have among an artifact's recorded files, whether they are there or not."""
    patterns = [pattern for part in parts for pattern in PARTS[part]]
    return sum(facts["bytes"] for name, facts in files.items() if any(fnmatch(name, each) for each in patterns))


def read(folder: Path) -> dict[str, Removed]:
    """Removed files by name; empty for a whole artifact. Raises DamagedArtifactError for an unreadable record."""
    path = folder / FILE
    try:
        record = sealed.read(path, artifact=folder.name)
        return {entry["file"]: Removed(**entry) for entry in record["removed"]}
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError, KeyError) as error:
        raise DamagedArtifactError(
            f"the record {path} is damaged: {error}",
            hint="`infuser doctor --repair` moves the artifact aside and computes it again",
        ) from error


def write(folder: Path, removed: Sequence[Removed]) -> None:
    """The record, complete and durable, or not there at all."""
    entries = [asdict(entry) for entry in removed]
    sealed.write(folder / FILE, {"format": FORMAT, "artifact": folder.name, "removed": entries})


def restore(source: Path, target: Path) -> None:
    """Move what was removed from `target` back into it, from a folder with the same content."""
    for name in read(target):
        (source / name).replace(target / name)
        faults.point("restore:file")
    fsync(target)
    (target / FILE).unlink()
    fsync(target)


def refuse(path: Path) -> None:
    """Raises PrunedError where a file of an artifact is not there because it was pruned."""
    entry = read(path.parent).get(path.name)
    if entry is None or path.exists():
        return
    noun = "gradient" if entry.part == GRADIENT else "checkpoint"
    raise PrunedError(
        f"{path} was pruned by gc on {entry.at} ({entry.rule})",
        hint=f"`infuser doctor RUN --repair --iteration T` computes that {noun} again, bit by bit the same",
        key=path.parent.name,
    )
