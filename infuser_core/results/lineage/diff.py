"""`infuser diff`: compare two runs by settings, metrics, and the first artifact that differs, with the reason."""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from infuser_core.results.lineage.graph import Graph, graph_of
from infuser_core.results.lineage.story import format_value, table_lines
from infuser_core.store.recipe import Record
from infuser_core.store.runs import describe_origin, find_run, list_differences, read_config
from infuser_core.store.store import Store
from infuser_core.store.views import Lens, Rows

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
Slot = tuple[str, int, str, int]
"""Phase, iteration, label, and a counter for artifacts that share these three."""


def _lines(rows: Sequence[Mapping[str, Any]], nothing: str) -> list[str]:
    return [f"  {line}" for line in table_lines(rows) or [nothing]]


def text(comparison: Mapping[str, Any]) -> str:
    """The comparison as text for a terminal."""
    runs, origins = comparison["runs"], comparison["origins"]
    parts = [f"{runs[0]} and {runs[1]}: {comparison['shared_artifacts']} artifacts in common"]
    parts += [f"{run} was {origin}" for run, origin in zip(runs, origins, strict=True) if origin]
    first = [f"  {name}: {format_value(value)}" for name, value in (comparison["first_difference"] or {}).items()]
    parts += ["", "settings:", *_lines(comparison["config"], "the same")]
    parts += ["", "code versions:", *_lines(comparison["versions"], "the same")]
    parts += ["", "first artifact that differs:", *(first or ["  none: every artifact is the same"])]
    return "\n".join([*parts, "", "metrics:", *_lines(comparison["metrics"], "none yet")])


def compare(root: Path, first: str, second: str) -> dict[str, Any]:
    """Compare two runs; returns JSON values. Raises UsageError when there is no such run.

    `origins`: how each run was made from another. `config`, `versions`: settings and code versions of phases
    that differ. `first_difference`: the first artifact in the order of the pipeline that differs, and why.
    """
    names = [find_run(root, first), find_run(root, second)]
    with closing(Lens(Store(root), runs=list(dict.fromkeys(names)))) as lens:
        one, other = (graph_of(lens.catalogue, name) for name in names)
        metrics = [row for sql in _METRICS for row in _metrics(*(lens.query(sql, [name]) for name in names))]
    settings = list_differences(read_config(root, names[0]), read_config(root, names[1]))
    return {
        "runs": names,
        "origins": [describe_origin(root, name) for name in names],
        "config": [{"key": key, "a": a, "b": b} for key, a, b in settings],
        "versions": _versions(one, other),
        "first_difference": _first(_slots(one), _slots(other)),
        "shared_artifacts": len(set(one.records) & set(other.records)),
        "metrics": metrics,
    }


def _versions(one: Graph, other: Graph) -> list[dict[str, Any]]:
    a, b = ({record.phase: record.version for record in graph.records.values()} for graph in (one, other))
    return [{"phase": phase, "a": a[phase], "b": b[phase]} for phase in a if phase in b and a[phase] != b[phase]]


def _slots(graph: Graph) -> dict[Slot, Record]:
    """Artifacts by phase, iteration and label, in the order of the pipeline."""
    counts: Counter[tuple[str, int, str]] = Counter()
    slots = {}
    for record in graph.records.values():
        place = (record.phase, record.iteration, record.label)
        slots[(*place, counts[place])] = record
        counts[place] += 1
    return slots


def _first(a: Mapping[Slot, Record], b: Mapping[Slot, Record]) -> dict[str, Any] | None:
    slot = _first_slot(a, b)
    if slot is None:
        return None
    mine, theirs = a.get(slot), b.get(slot)
    return {
        "phase": slot[0],
        "iteration": slot[1] if slot[1] >= 0 else None,
        "a": mine.key if mine else None,
        "b": theirs.key if theirs else None,
        "why": _reason(mine, theirs),
    }


def _first_slot(a: Mapping[Slot, Record], b: Mapping[Slot, Record]) -> Slot | None:
    """The first slot whose artifacts differ, in the order of run a, or an earlier one that only run b has."""
    unlike = {slot for slot in {*a, *b} if slot not in a or slot not in b or a[slot].digest != b[slot].digest}
    in_a, in_b = (next((slot for slot in side if slot in unlike), None) for side in (a, b))
    if in_a is None or in_b is None or in_b in a:
        return in_a or in_b
    order = list(b)
    return in_b if in_a in b and order.index(in_b) < order.index(in_a) else in_a


def _reason(a: Record | None, b: Record | None) -> list[str]:
    if a is None or b is None:
        return [f"only run {'b' if a is None else 'a'} has it"]
    lines = [f"code version {a.version} and {b.version}"] if a.version != b.version else []
    lines += [f"seed {a.seed} and {b.seed}"] if a.seed != b.seed else []
    settings = list_differences(a.config, b.config)
    lines += [f"setting {key}: {format_value(mine)} and {format_value(theirs)}" for key, mine, theirs in settings]
    lines += [f"input {name}" for name, _, _ in list_differences(a.inputs, b.inputs)]
    return lines or ["the same recipe gave another result: the phase is not deterministic"]


def _metrics(first: Rows, second: Rows) -> list[dict[str, Any]]:
    one, other = ({row["name"]: row["value"] for row in rows} for rows in (first, second))
    rows = [{"metric": name, "a": one.get(name), "b": other.get(name)} for name in dict.fromkeys([*one, *other])]
    return [row | {"b - a": None if None in (row["a"], row["b"]) else row["b"] - row["a"]} for row in rows]
