"""Recipes (everything that determines an artifact), keys (hashes of recipes), and commit records of artifacts."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from infuser_core.errors import DamagedArtifactError, MissingArtifactError
from infuser_core.system import sealed

JSON = dict[str, Any]
MANIFEST = "artifact.json"
"""File name of an artifact's commit record."""
REMEDY = (
    "`infuser doctor --repair` moves it aside and computes it again, with what depends on it; then `infuser resume`"
)
"""Hint about a damaged artifact."""
LINKED = "is a symbolic link: an artifact must be in the store itself"


def stage_title(phase: str, iteration: int) -> str:
    """Human-readable name of a stage for messages."""
    return f"{phase}, iteration {iteration}" if iteration >= 0 else phase


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactRef:
    """Reference to a committed artifact by key and digest: small enough to pass through any scheduler."""

    kind: str
    """Phase that computed it, e.g. `rollout_dev`."""
    key: str
    """`<phase>-<16 hex digits>`, computed from the recipe."""
    digest: str
    """sha256 of the committed content, hex."""

    @property
    def id(self) -> str:
        """Artifact id, `<key>@<digest prefix>`: names the artifact in the recipes of later phases."""
        return f"{self.key}@{self.digest[:16]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Everything that determines an artifact: phase and version, configuration, seed, iteration and inputs."""

    phase: str
    """Phase name."""
    version: int
    """VERSION of the phase's module."""
    config: Mapping[str, Any]
    """The part of the configuration that the phase uses, JSON values only."""
    seed: int
    """Seed of the run; 0 for phases without randomness."""
    iteration: int = -1
    """Co-training iteration, or -1 outside the loop."""
    inputs: Mapping[str, str] = field(default_factory=dict)
    """Artifact id by name of the input."""

    @property
    def title(self) -> str:
        """Human-readable name of its stage for messages."""
        return stage_title(self.phase, self.iteration)

    def to_json(self) -> JSON:
        """Convert to a JSON object with sorted keys, the form that is hashed and stored."""
        return json.loads(sealed.canonical(self.parts))

    @property
    def parts(self) -> JSON:
        """The recipe's fields by name, not copied: deep copies would take half of the time of planning a run."""
        return {part.name: getattr(self, part.name) for part in fields(self)}

    @property
    def key(self) -> str:
        """Key of the artifact: the phase and 16 hex digits of the sha256 of the recipe's canonical JSON."""
        return f"{self.phase}-{sealed.digest_of(self.parts)[:16]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Commit record of an artifact, `artifact.json`: written last, it lists the recipe and all files."""

    ref: ArtifactRef
    """Reference to the artifact: phase, key and digest."""
    recipe: Mapping[str, Any]
    """Fields of the recipe by name."""
    files: Mapping[str, Mapping[str, Any]]
    """sha256 and size in bytes by file name."""
    volatile: Sequence[str]
    """Names of the files that are not part of the digest."""
    rows: Mapping[str, int]
    """Number of rows by table name."""
    summary: Mapping[str, Any]
    """Values that the phase reports about its result."""
    seconds: float
    """Duration of the phase, seconds."""
    machine: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Hardware and settings by engine; empty if no engine was used, and in records of older versions."""
    created: str = ""
    """Time of the commit, ISO 8601."""
    host: str = ""
    """Name of the machine that computed it."""

    @property
    def key(self) -> str:
        """Key of the artifact."""
        return self.ref.key

    @property
    def phase(self) -> str:
        """Phase that computed the artifact."""
        return self.ref.kind

    @property
    def digest(self) -> str:
        """sha256 of the committed content, hex."""
        return self.ref.digest

    @property
    def id(self) -> str:
        """Artifact id."""
        return self.ref.id

    @property
    def version(self) -> int:
        """VERSION of the phase's code."""
        return int(self.recipe["version"])

    @property
    def seed(self) -> int:
        """Seed of the run; 0 for phases without randomness."""
        return int(self.recipe["seed"])

    @property
    def iteration(self) -> int:
        """Co-training iteration, or -1 outside the loop."""
        return int(self.recipe["iteration"])

    @property
    def config(self) -> dict[str, Any]:
        """The part of the configuration that the phase used."""
        return dict(self.recipe["config"])

    @property
    def inputs(self) -> Mapping[str, str]:
        """Artifact id by name of the input."""
        return dict(self.recipe["inputs"])

    @property
    def label(self) -> str:
        """Benchmark or part that tells it from other artifacts of its phase and iteration; empty for most artifacts."""
        return str(self.summary.get("benchmark") or self.summary.get("label") or self.summary.get("part") or "")

    @property
    def num_bytes(self) -> int:
        """Total size of all files, bytes."""
        return sum(int(facts["bytes"]) for facts in self.files.values())


def artifact_folder(root: Path, key: str) -> Path:
    """Path of an artifact's folder in a store, whether it exists or not."""
    return root / "artifacts" / key.rpartition("-")[0] / key


def read_record(folder: Path) -> Record:
    """Read the commit record in an artifact's folder. Raises StoreError if it is missing or damaged."""
    for place in (folder.parent, folder, folder / MANIFEST):
        if place.is_symlink():
            raise DamagedArtifactError(f"{place} {LINKED}", hint=REMEDY)
    try:
        record = sealed.read(folder / MANIFEST, key=folder.name)
        recipe = Recipe(**record["recipe"])
        # Records of older versions have no seal: check the digest against the list of files.
        content = {name: facts["sha256"] for name, facts in record["files"].items() if name not in record["volatile"]}
        if sealed.digest_of(content) != record["digest"]:
            raise ValueError("it names other files than its digest was taken from")
        if recipe.key != record["key"]:
            raise ValueError("its recipe gives another key")
        return Record(
            ref=ArtifactRef(kind=record["kind"], key=record["key"], digest=record["digest"]),
            recipe=recipe.parts,
            files=record["files"],
            volatile=record["volatile"],
            rows=record["rows"],
            summary=record["summary"],
            seconds=record["seconds"],
            machine=record.get("machine", {}),
            created=record.get("created", ""),
            host=record.get("host", ""),
        )
    except FileNotFoundError as error:
        raise MissingArtifactError(f"no artifact at {folder}", hint="`infuser runs` lists what is there") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedArtifactError(f"the commit record {folder / MANIFEST} is damaged: {error}", hint=REMEDY) from error
