"""The runs of a report: which variant and seed each is, and in which settings they differ."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from infuser_core.report.content import Query, Section
from infuser_core.report.tables import literal

NAMING = ("seed", "name", "variant")
"""Leaves that name a run and set nothing but its chance."""
ANCHOR = "anchor"
LONGEST = 24
"""Characters of a setting's value inside a label."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """One run of a report."""

    run: str
    """Name."""
    variant: str
    """What it has in common with its other seeds."""
    seed: int
    """Run seed."""
    leaves: Mapping[str, Any]
    """Settings by dotted name."""
    anchor: str = ""
    """Model that it started from."""


def choose(configs: Mapping[str, Mapping[str, Any]]) -> tuple[Chosen, ...]:
    """The runs by name; runs of one variant whose settings differ become variants of their own, named by these."""
    found = tuple(_one(name, config) for name, config in configs.items())
    return tuple(replace(one, variant=_told_apart(one, found)) for one in found)


def _one(name: str, config: Mapping[str, Any]) -> Chosen:
    leaves = flat(config)
    variant = "-".join(part for part in (str(config.get("name", "")), str(config.get("variant") or "")) if part)
    model = leaves.get("anchor.model") or leaves.get("anchor.path") or leaves.get("anchor.type") or ""
    return Chosen(run=name, variant=variant or name, seed=int(config.get("seed", 0)), leaves=leaves, anchor=str(model))


def _told_apart(one: Chosen, found: Sequence[Chosen]) -> str:
    alike = [other for other in found if other.variant == one.variant]
    parts = [f"{leaf}={short(one.leaves.get(leaf))}" for leaf in differing(alike)]
    return " ".join([one.variant, *parts])


def flat(config: Any, *, within: str = "") -> dict[str, Any]:
    """Leaves of nested settings by dotted name; an empty mapping or list is a leaf."""
    if isinstance(config, Mapping) and config:
        items = [(str(key), value) for key, value in config.items()]
    elif isinstance(config, list) and config and any(isinstance(part, Mapping) for part in config):
        items = [(str(at), value) for at, value in enumerate(config)]
    else:
        return {within: config}
    return {
        name: leaf
        for key, value in items
        for name, leaf in flat(value, within=f"{within}.{key}" if within else key).items()
    }


def differing(found: Sequence[Chosen]) -> list[str]:
    """Leaves that are not the same in all runs, in the order of the settings; names and seeds aside."""
    names = dict.fromkeys(leaf for one in found for leaf in one.leaves)
    return [leaf for leaf in names if leaf not in NAMING and len({repr(one.leaves.get(leaf)) for one in found}) > 1]


def short(value: Any) -> str:
    """A setting's value as part of a label."""
    shown = f"{value:g}" if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else str(value)
    return shown if len(shown) <= LONGEST else shown[: LONGEST - 1] + "\u2026"


def variants(found: Sequence[Chosen]) -> list[str]:
    """Variants in order of appearance."""
    return list(dict.fromkeys(one.variant for one in found))


def anchor_sql(found: Sequence[Chosen]) -> str:
    """`variant` for SQL where anchors have a bar of their own: one where all runs started from the same model."""
    same = len({tuple((k, repr(v)) for k, v in one.leaves.items() if k.startswith("anchor.")) for one in found}) == 1
    anchor = literal(ANCHOR) if same else f"{literal(ANCHOR + ' of ')} || variant"
    return f"CASE WHEN checkpoint = 'anchor' THEN {anchor} ELSE variant END AS variant"


def chosen_sql(found: Sequence[Chosen]) -> str:
    """The runs as the first table of a statement: `WITH chosen(run, variant, seed) AS (...)`."""
    rows = ",\n    ".join(f"({literal(one.run)}, {literal(one.variant)}, {one.seed})" for one in found)
    return f"WITH chosen(run, variant, seed) AS (VALUES\n    {rows})"


class Recorder:
    """Runs statements and keeps them, so that every section of a report can show its own."""

    def __init__(self, query: Query) -> None:
        self._query = query
        self.statements: list[str] = []

    def __call__(self, sql: str) -> list[dict[str, object]]:
        if sql not in self.statements:
            self.statements.append(sql)
        return self._query(sql)


def with_sql(query: Query, build: Callable[[Query], Section]) -> Section:
    """A section with the statements that it was made from."""
    recorder = Recorder(query)
    section = build(recorder)
    return replace(section, sql=recorder.statements)
