"""Recipes: everything an artifact is a function of, and the key that follows from it."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

JSON = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactRef:
    """A committed artifact: small enough to travel through any scheduler."""

    kind: str
    """Phase that made it, e.g. `rollout_dev`."""
    key: str
    """`<phase>-<16 hex digits>`: a function of the recipe."""
    digest: str
    """sha256 over the committed content, hex."""

    @property
    def id(self) -> str:
        """`key@digest prefix`: what enters the recipes of later phases."""
        return f"{self.key}@{self.digest[:16]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Everything an artifact is a function of."""

    phase: str
    """Phase name."""
    version: int
    """VERSION of the phase's module."""
    config: Mapping[str, Any]
    """The phase's own sub-configuration, JSON values only."""
    seed: int
    """Run seed; 0 for phases that draw nothing."""
    iteration: int = -1
    """Co-training iteration, or -1 outside the loop.."""
    inputs: Mapping[str, str] = field(default_factory=dict)
    """Name to artifact id."""

    def to_json(self) -> JSON:
        """JSON object with sorted keys, the form that is hashed and stored."""
        return json.loads(canonical(asdict(self)))

    @property
    def key(self) -> str:
        """`phase-` and 16 hex digits of the sha256 of the canonical JSON."""
        return f"{self.phase}-{hashlib.sha256(canonical(asdict(self)).encode()).hexdigest()[:16]}"


def canonical(value: Any) -> str:
    """JSON with sorted keys and no blanks: equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def digest_of(value: Any) -> str:
    """sha256 of the canonical JSON, hex."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()
