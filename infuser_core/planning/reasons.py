"""Reasons for which a stage would run: its recipe beside that of the artifact which stood in its place before."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from infuser_core.planning.place import SALT, Salts
from infuser_core.store.recipe import ArtifactRef, Recipe, Record

MISSING = "(none)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """One setting with two values."""

    name: str
    """Its keys, joined by dots."""
    old: Any
    """Value before."""
    new: Any
    """Value after."""

    def is_at_or_below(self, key: str) -> bool:
        """Whether the leaf is this key or one under it."""
        return self.name == key or self.name.startswith(f"{key}.")

    @property
    def last(self) -> str:
        """The last of its keys."""
        return self.name.rpartition(".")[2]

    def __str__(self) -> str:
        return f"{self.name} {_short(self.old)} -> {_short(self.new)}"


def leaves_that_differ(old: Any, new: Any, where: str = "") -> list[Leaf]:
    """Every leaf with different values; one that only one side has is `(none)` on the other."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        found = []
        for key in dict.fromkeys([*old, *new]):
            name = f"{where}.{key}".lstrip(".")
            found += leaves_that_differ(old.get(key, MISSING), new.get(key, MISSING), name)
        return found
    return [] if old == new else [Leaf(name=where, old=old, new=new)]


def _short(value: Any, width: int = 40) -> str:
    text = str(value)
    return text if len(text) <= width else text[: width - 3] + "..."


UNKNOWN = "0" * 64
"""Digest of an artifact that nobody has seen yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A stage that the pipeline came by."""

    recipe: Recipe
    """Recipe of the artifact; phase, iteration and inputs alone where more is not known."""
    ref: ArtifactRef
    """The artifact; an assumed one where it is not stored."""
    stored: bool
    """Whether the store has it."""
    known: bool
    """False where the recipe depends on the content of an artifact that is not there."""

    @property
    def is_final(self) -> bool:
        """Whether its key is certain: the recipe is known, and the id of every input."""
        return self.known and not any(identity.endswith(f"@{UNKNOWN[:16]}") for identity in self.recipe.inputs.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """One reason for which a stage would run."""

    kind: str
    """forced, version, setting, seed, depends, input or missing."""
    text: str
    """For people."""
    key: str = ""
    """Setting, input or phase that it is about."""
    old: Any = None
    """Value before."""
    new: Any = None
    """Value now."""

    def to_json(self) -> dict[str, Any]:
        """The reason for scripts."""
        facts = {"kind": self.kind, "text": self.text, "key": self.key, "old": self.old, "new": self.new}
        return {name: value for name, value in facts.items() if value not in ("", None)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    """Former artifacts that a plan is compared with."""

    records: Sequence[Record]
    """Artifacts of the run that it is compared with, in the order of the pipeline."""
    settings: Sequence[Leaf]
    """Settings in which the two runs differ."""
    seen: frozenset[str]
    """Keys that some run of the store has had."""

    def like(self, recipe: Recipe) -> Record | None:
        """The artifact in the recipe's place, the most similar of several; None where there was none."""
        place = [r for r in self.records if (r.phase, r.iteration) == (recipe.phase, recipe.iteration)]
        alike = [record for record in place if json.loads(record.config).get("label") == recipe.config.get("label")]
        return min(alike, key=lambda record: (_distance(recipe, record), record.key), default=None)


def _distance(recipe: Recipe, record: Record) -> int:
    inputs = leaves_that_differ(dict(record.inputs), dict(recipe.inputs))
    settings = leaves_that_differ(json.loads(record.config), dict(recipe.config))
    return len(inputs) + len(settings)


def reasons(step: Step, before: Before, salts: Salts, missing: Mapping[str, Recipe]) -> list[Reason]:
    """Reasons for which this stage would run, the most telling first; `missing` are assumed artifacts by id."""
    recipe = step.recipe
    if not step.known:
        return _inputs(recipe, None, missing) or [_DEPENDS]
    record = before.like(recipe)
    found = _forced(recipe, record, salts)
    if record is not None:
        found += _version(recipe, record)
        found += _settings(recipe, record, before.settings)
        if record.seed != recipe.seed:
            text = f"seed {record.seed} -> {recipe.seed}"
            found.append(Reason(kind="seed", key="seed", old=record.seed, new=recipe.seed, text=text))
    found += _inputs(recipe, record, missing)
    return found or [_missing(recipe, before.seen)]


def _forced(recipe: Recipe, record: Record | None, salts: Salts) -> list[Reason]:
    salt = recipe.config.get(SALT)
    if salt is None or not salts.forced(recipe.phase, recipe.iteration):
        return []
    old = json.loads(record.config).get(SALT) if record is not None else None
    if old == salt:
        return []
    return [Reason(kind="forced", key=SALT, old=old, new=salt, text=f"forced: computed again, attempt {salt}")]


def _version(recipe: Recipe, record: Record) -> list[Reason]:
    if record.version == recipe.version:
        return []
    text = f"version of {recipe.phase} {record.version} -> {recipe.version}"
    return [Reason(kind="version", key=recipe.phase, old=record.version, new=recipe.version, text=text)]


def _settings(recipe: Recipe, record: Record, changed: Sequence[Leaf]) -> list[Reason]:
    """Settings of the phase that differ, each under the name that it has in the configuration, where it has one."""
    leaves = leaves_that_differ(json.loads(record.config), dict(recipe.config))
    named = [_as_configured(recipe, leaf, changed) for leaf in leaves if leaf.name != SALT]
    return [Reason(kind="setting", key=n.name, old=n.old, new=n.new, text=str(n)) for n in named]


def _as_configured(recipe: Recipe, leaf: Leaf, changed: Sequence[Leaf]) -> Leaf:
    same = [other for other in changed if (other.old, other.new) == (leaf.old, leaf.new)]
    alike = [other for other in same if other.last == leaf.last] or same
    # Both roles have a learning rate: the phase's name says whose.
    own = [other for other in alike if any(part in recipe.phase for part in other.name.split("."))] or alike
    return own[0] if own else leaf


def _inputs(recipe: Recipe, record: Record | None, missing: Mapping[str, Recipe]) -> list[Reason]:
    before = dict(record.inputs) if record is not None else {}
    found = []
    for name, identity in recipe.inputs.items():
        if identity in missing:
            found.append(_depends(missing[identity], name))
        elif before and identity != before.get(name):
            text = f"input {name} changed: {before.get(name, 'none')} -> {identity}"
            found.append(Reason(kind="input", key=name, old=before.get(name), new=identity, text=text))
    for name in before:
        if name not in recipe.inputs:
            found.append(Reason(kind="input", key=name, old=before[name], text=f"input {name} is no longer used"))
    return found


def _depends(source: Recipe, name: str) -> Reason:
    text = f"depends on {title(source)}, which would run"
    return Reason(kind="depends", key=name, new=title(source), text=text)


_DEPENDS = Reason(kind="depends", text="depends on stages before it, which would run", new="stages before it")


def _missing(recipe: Recipe, seen: frozenset[str]) -> Reason:
    gone = "missing: it was computed, and is gone from the store"
    return Reason(kind="missing", text=gone if recipe.key in seen else "missing: not computed yet")


def title(recipe: Recipe) -> str:
    """A stage in words."""
    return f"{recipe.phase}, iteration {recipe.iteration}" if recipe.iteration >= 0 else recipe.phase
