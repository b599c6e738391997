"""`infuser diff`: where two runs part, and what came of it."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infuser_core.lineage.answer import shown, table_lines
from infuser_core.lineage.graph import Graph, graph_of
from infuser_core.planning.history import origin_of
from infuser_core.store.catalogue import Catalogue, Record
from infuser_core.store.runs import find_run, read_config
from infuser_core.store.views import Lens

_METRICS = (
    """
    select phase || ' ' || benchmark || ' @' || iteration as name, accuracy as value
    from benchmark_scores where run = ? order by phase, benchmark, iteration
    """,
    """
    select 'mean influence @' || iteration as name, avg(score) as value
    from scores where run = ? group by all order by 1
    """,
    """
    select 'valid questions @' || iteration as name, count(*) as value
    from questions where run = ? group by all order by 1
    """,
    """
    select 'gradient norm of ' || role || ' @' || iteration as name, avg(gradient_norm) as value
    from updates where run = ? group by all order by 1
    """,
    """
    select 'seconds of all artifacts' as name, sum(seconds) as value
    from artifacts where artifact_key in (select artifact_key from run_artifacts where run = ?)
    """,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Two runs side by side."""

    runs: tuple[str, str]
    """Their names."""
    config: Sequence[Mapping[str, Any]]
    """Settings that differ: key and both values."""
    versions: Sequence[Mapping[str, Any]]
    """Phases whose code version differs."""
    first: Mapping[str, Any] | None
    """The first artifact, in the order of the pipeline, that is not the same, and why; None where all are."""
    shared: int
    """Artifacts that both runs have."""
    metrics: Sequence[Mapping[str, Any]]
    """Metrics side by side; None where one run has none."""
    origins: tuple[str, str] = ("", "")
    """Which run each was made from, in words; empty for none."""

    def to_json(self) -> dict[str, Any]:
        """The comparison for scripts."""
        return {
            "runs": list(self.runs),
            "origins": list(self.origins),
            "config": list(self.config),
            "versions": list(self.versions),
            "first_difference": self.first,
            "shared_artifacts": self.shared,
            "metrics": list(self.metrics),
        }

    def text(self) -> str:
        """The comparison for people."""
        parts = [f"{self.runs[0]} and {self.runs[1]}: {self.shared} artifacts in common"]
        parts += [f"{run} was {origin}" for run, origin in zip(self.runs, self.origins, strict=True) if origin]
        parts += ["", "settings:", *(_lines(self.config) or ["  the same"])]
        parts += ["", "code versions:", *(_lines(self.versions) or ["  the same"])]
        parts += ["", "first artifact that differs:"]
        if self.first is None:
            parts.append("  none: every artifact is the same")
        else:
            parts += [f"  {name}: {shown(value)}" for name, value in self.first.items()]
        return "\n".join([*parts, "", "metrics:", *(_lines(self.metrics) or ["  none yet"])])


def compare(root: Path, first: str, second: str) -> Difference:
    """Two runs by name. Raises UsageError when there is no such run."""
    names = (find_run(root, first), find_run(root, second))
    catalogue = Catalogue(root)
    one, other = (graph_of(catalogue, name) for name in names)
    lens = Lens(catalogue, runs=list(dict.fromkeys(names)))
    try:
        metrics = _metrics(lens, names)
    finally:
        lens.close()
    return Difference(
        runs=names,
        config=_unlike(read_config(root, names[0]), read_config(root, names[1])),
        versions=_versions(one, other),
        first=_first(one, other),
        shared=len(set(one.records) & set(other.records)),
        metrics=metrics,
        origins=(origin_of(root, names[0]), origin_of(root, names[1])),
    )


def _lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return [f"  {line}" for line in table_lines(rows)]


def _unlike(one: Any, other: Any, where: str = "") -> list[dict[str, Any]]:
    """Leaves that differ."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        keys = sorted({*one, *other})
        return [row for key in keys for row in _unlike(one.get(key), other.get(key), f"{where}.{key}".lstrip("."))]
    return [] if one == other else [{"key": where, "a": one, "b": other}]


def _versions(one: Graph, other: Graph) -> list[dict[str, Any]]:
    found = [{record.phase: record.version for record in graph.records.values()} for graph in (one, other)]
    return [
        {"phase": phase, "a": found[0].get(phase), "b": found[1].get(phase)}
        for phase in dict.fromkeys([*found[0], *found[1]])
        if phase in found[0] and phase in found[1] and found[0][phase] != found[1][phase]
    ]


Slot = tuple[str, int, str, int]


def _slots(graph: Graph) -> dict[Slot, Record]:
    """Artifacts by the place they have in the pipeline, whatever they are made of, in its order."""
    seen: Counter[tuple[str, int, str]] = Counter()
    found = {}
    for record in graph.records.values():
        summary = record.summary
        label = str(summary.get("benchmark") or summary.get("label") or summary.get("part") or "")
        place = (record.phase, record.iteration, label)
        found[(*place, seen[place])] = record
        seen[place] += 1
    return found


def _first(one: Graph, other: Graph) -> dict[str, Any] | None:
    a, b = _slots(one), _slots(other)
    slot = _first_slot(a, b)
    if slot is None:
        return None
    mine, theirs = a.get(slot), b.get(slot)
    head = {"phase": slot[0], "iteration": slot[1] if slot[1] >= 0 else None}
    keys = {"a": mine.key if mine else None, "b": theirs.key if theirs else None}
    return head | keys | {"why": _reason(mine, theirs)}


def _first_slot(a: Mapping[Slot, Record], b: Mapping[Slot, Record]) -> Slot | None:
    """The first place that differs, in the order of run a; or one that only run b has, where it comes earlier."""
    unlike = {slot for slot in {*a, *b} if slot not in a or slot not in b or a[slot].digest != b[slot].digest}
    in_a = next((slot for slot in a if slot in unlike), None)
    in_b = next((slot for slot in b if slot in unlike), None)
    if in_a is None or in_b is None or in_b in a:
        return in_a or in_b
    order = list(b)
    return in_b if in_a in b and order.index(in_b) < order.index(in_a) else in_a


def _reason(a: Record | None, b: Record | None) -> list[str]:
    if a is None or b is None:
        return [f"only run {'b' if a is None else 'a'} has it"]
    lines = []
    if a.version != b.version:
        lines.append(f"code version {a.version} and {b.version}")
    if a.seed != b.seed:
        lines.append(f"seed {a.seed} and {b.seed}")
    settings = _unlike(json.loads(a.config), json.loads(b.config))
    lines += [f"setting {row['key']}: {shown(row['a'])} and {shown(row['b'])}" for row in settings]
    names = sorted({*a.inputs, *b.inputs})
    lines += [f"input {name}" for name in names if a.inputs.get(name) != b.inputs.get(name)]
    return lines or ["the same recipe gave another result: the phase is not deterministic"]


def _metrics(lens: Lens, names: tuple[str, str]) -> list[dict[str, Any]]:
    found = []
    for statement in _METRICS:
        sides = [{row["name"]: row["value"] for row in lens.query(statement, [name])} for name in names]
        for metric in dict.fromkeys([*sides[0], *sides[1]]):
            a, b = (side.get(metric) for side in sides)
            found.append(
                {"metric": metric, "a": a, "b": b, "b - a": b - a if a is not None and b is not None else None}
            )
    return found
