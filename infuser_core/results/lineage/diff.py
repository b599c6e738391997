"""`infuser diff`: compare two runs by settings, metrics, and the first artifact that differs, with the reason."""

from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from infuser_core.errors import quantity
from infuser_core.results.lineage.graph import Graph, graph_of
from infuser_core.results.lineage.outcome import results
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
_NOISE = 1e-6
"""Relative difference up to which two numbers count as equal."""
Slot = tuple[str, int, str, int]
"""Phase, iteration, label, and a counter for artifacts that share these three."""


def text(comparison: Mapping[str, Any], *, verbose: bool = False) -> str:
    """The comparison as text for a terminal: the results; if `verbose`, the metrics of every iteration, too."""
    runs, origins = comparison["runs"], comparison["origins"]
    parts = [f"A  {runs[0]}", f"B  {runs[1]}", f"{quantity(comparison['shared_artifacts'], 'artifact')} in common"]
    parts += [f"{run} was {origin}" for run, origin in zip(runs, origins, strict=True) if origin]
    difference = comparison["first_difference"]
    sections = {
        "settings": comparison["config"],
        "code versions": comparison["versions"],
        "results": [_in_short(row) for row in comparison["results"]],
        "metrics": [_in_short(row) for row in comparison["metrics"]] if verbose else [],
    }
    for title, rows in sections.items():
        parts += ["", f"{title}:", *(f"  {line}" for line in table_lines(rows))] if rows else []
    parts += ["", f"first artifact that differs: {_describe_first(difference)}"]
    if not verbose:
        parts.append(f"{quantity(len(comparison['metrics']), 'metric')} by iteration: --verbose")
    return "\n".join(parts)


def _in_short(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row with four digits, and a difference of rounding errors as 0."""
    scale = max((abs(value) for name, value in row.items() if name in "ab" and value is not None), default=0.0)
    short = {name: float(f"{value:.4g}") if isinstance(value, float) else value for name, value in row.items()}
    gap = row["b - a"]
    return short if gap is None or abs(gap) > _NOISE * scale else {**short, "b - a": 0}


def _describe_first(difference: Mapping[str, Any] | None) -> str:
    if difference is None:
        return "none: every artifact is the same"
    where = "" if difference["iteration"] is None else f" of iteration {difference['iteration']}"
    keys = " and ".join(filter(None, (difference["a"], difference["b"])))
    return f"{difference['phase']}{where}, {'; '.join(difference['why'])} ({keys})"


def compare(root: Path, first: str, second: str) -> dict[str, Any]:
    """Compare two runs; returns JSON values. Raises UsageError when there is no such run.

    `origins`: how each run was made from another. `config`, `versions`: settings and code versions of phases
    that differ. `first_difference`: the first artifact in the order of the pipeline that differs, and why.
    `results`: accuracies of anchor and selected checkpoint.
    """
    names = [find_run(root, first), find_run(root, second)]
    with closing(Lens(Store(root), runs=list(dict.fromkeys(names)))) as lens:
        one, other = (graph_of(lens.catalogue, name) for name in names)
        metrics = [row for sql in _METRICS for row in _metrics(*(lens.query(sql, [name]) for name in names))]
        outcomes = _metrics(*(_outcome(lens, name) for name in names))
    settings = list_differences(read_config(root, names[0]), read_config(root, names[1]))
    return {
        "runs": names,
        "origins": [describe_origin(root, name) for name in names],
        "config": [{"key": key, "a": a, "b": b} for key, a, b in settings],
        "versions": _versions(one, other),
        "first_difference": _first(_slots(one), _slots(other)),
        "shared_artifacts": len(set(one.records) & set(other.records)),
        "results": outcomes,
        "metrics": metrics,
    }


def _outcome(lens: Lens, run: str) -> Rows:
    """Accuracies of a run's anchor and selected checkpoint, under names that runs share."""
    selections = lens.query("select selected_iteration, accuracy from selections where run = ?", [run])
    rows = [
        {"name": f"{row['benchmark']}, {checkpoint}", "value": row[checkpoint]}
        for row in results(lens.query, run)
        for checkpoint in ("anchor", "selected")
        if row[checkpoint] is not None
    ]
    for selection in selections:
        rows.append({"name": "validation, selected", "value": selection["accuracy"]})
        rows.append({"name": "selected after iterations", "value": selection["selected_iteration"]})
    return rows


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
    rows.sort(key=lambda row: _natural(row["metric"]))
    return [row | {"b - a": None if None in (row["a"], row["b"]) else row["b"] - row["a"]} for row in rows]


def _natural(metric: str) -> tuple[str, int]:
    """Sort key of a metric: its name, then its iteration as a number."""
    name, _, iteration = metric.rpartition("@")
    return name, int(iteration) if name else 0
