"""Record of the files that retention removed from an artifact (pruned): `pruned.json` next to its commit record.

The record is written before the first file is removed and deleted after the last one is restored, so each file of the
artifact always either exists or is listed.
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
"""Patterns of file names by part: a checkpoint's files needed only for training (moments), those also needed for
sampling (weights), and gradients that one phase stores for another phase of the same iteration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """An entry of `pruned.json`: one file that retention removed."""

    file: str
    """File name relative to the artifact's folder."""
    part: str
    """moments, weights or gradient."""
    sha256: str
    """sha256 of its content, hex, as in the commit record."""
    bytes: int
    rule: str
    """Reason for the removal."""
    at: str
    """Local time of the removal, ISO 8601."""


def recorded_bytes(files: Mapping[str, Mapping[str, Any]], *parts: str) -> int:
    """Total size of the named parts in an artifact's commit record, bytes, including files that were removed since."""
    patterns = [pattern for part in parts for pattern in PARTS[part]]
    return sum(facts["bytes"] for name, facts in files.items() if any(fnmatch(name, each) for each in patterns))


def read_removed(folder: Path) -> dict[str, Removed]:
    """Read the entries of removed files by file name; empty for a complete artifact.

    Raises DamagedArtifactError for a damaged record.
    """
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


def write_removed(folder: Path, removed: Sequence[Removed]) -> None:
    """Write `pruned.json` durably, replacing it in one step."""
    entries = [asdict(entry) for entry in removed]
    sealed.write(folder / FILE, {"format": FORMAT, "artifact": folder.name, "removed": entries})


def restore_files(source: Path, target: Path) -> None:
    """Restore an artifact: move its removed files into `target` from `source`, a folder with the same content."""
    for name in read_removed(target):
        (source / name).replace(target / name)
        faults.point("restore:file")
    fsync(target)
    (target / FILE).unlink()
    fsync(target)


def refuse_pruned(path: Path) -> None:
    """Raise PrunedError if an artifact's file is missing because retention removed it."""
    entry = read_removed(path.parent).get(path.name)
    if entry is None or path.exists():
        return
    noun = "gradient" if entry.part == GRADIENT else "checkpoint"
    raise PrunedError(
        f"{path} was pruned by gc on {entry.at} ({entry.rule})",
        hint=f"`infuser doctor RUN --repair --iteration T` computes that {noun} again, bit by bit the same",
        key=path.parent.name,
    )
