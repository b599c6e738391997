"""Contents of a run's page in the viewer and in reports: provenance, results, curves, time, iterations."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from infuser_core.config.phase_table import Curve, Phase
from infuser_core.results.lineage import progress
from infuser_core.results.lineage.attempts import state_of
from infuser_core.results.lineage.graph import Graph, graph_of
from infuser_core.results.lineage.outcome import results
from infuser_core.store import runs
from infuser_core.store.views import Lens
from infuser_core.system import sealed

MOST_PARTS = 40
"""Most iterations that are listed; the latest are shown."""
Curves = dict[str, Any]
"""Data of a chart: `title`; `labels` of the runs; `columns`, the iterations and then each run's values or None."""
_TIME = """select phase, count(*) as artifacts, sum(rows)::bigint as rows, sum(seconds) as seconds,
    sum(seconds) / nullif(sum(sum(seconds)) over (), 0) as share from run_artifacts
    group by phase order by seconds desc"""
_SECONDS = "select run, iteration, sum(seconds) as value from run_artifacts where iteration >= 0 group by all"


def run_page(root: Path, name: str, lens: Lens, *, beside: Sequence[str] = ()) -> dict[str, Any]:
    """Template variables of a run's page, optionally with the curves of other runs."""
    state = state_of(root, name)
    record = dict(runs.read_run_or_empty(root, name))
    parts = progress.parts_of(root, name, state=state)
    return {
        "name": name,
        "state": state,
        "facts": provenance(root, graph_of(lens.catalogue, name), record, state),
        "config": yaml.safe_dump(record.get("config", {}), sort_keys=False, allow_unicode=True),
        "results": results(lens.query, name),
        "charts": curves(lens, [name, *beside]),
        "parts": parts[-MOST_PARTS:],
        "earlier": len(parts[:-MOST_PARTS]),
        "phases": lens.query(_TIME),
    }


def curves(lens: Lens, names: Sequence[str]) -> list[Curves]:
    """Charts of these runs over iterations; empty ones are left out."""
    charts = []
    statements = {curve.title: _statement(phase, curve) for phase in Phase if (curve := phase.facts.curve)}
    for title, statement in {**statements, "Seconds per iteration": _SECONDS}.items():
        rows = lens.query(statement)
        points = {(row["run"], row["iteration"]): row["value"] for row in rows if row["value"] is not None}
        iterations = sorted({iteration for _, iteration in points})
        values = [[points.get((run, each)) for each in iterations] for run in names]
        charts.append({"title": title, "labels": list(names), "columns": [list(map(float, iterations)), *values]})
    return [one for one in charts if one["columns"][0]]


def _statement(phase: Phase, curve: Curve) -> str:
    """SQL of a phase's curve, from summaries of artifacts only: no table of rows is opened."""
    number = f"try_cast(a.summary ->> '{curve.value}' as double)"
    if curve.over:
        number += f" / nullif(try_cast(a.summary ->> '{curve.over}' as double), 0)"
    return f"""select l.run, l.iteration, avg({number}) as value from run_artifacts l
        join artifacts a on a.artifact_key = l.artifact_key where l.phase = '{phase}' group by all"""


def provenance(root: Path, graph: Graph, record: dict[str, Any], state: str) -> dict[str, str]:
    """Provenance of a run: date, seed, settings, model, software, hardware, as recorded."""
    config, records = record.get("config", {}), list(graph.records.values())
    anchor, attempt = config.get("anchor") or {}, runs.read_attempt(root, graph.run)
    machines = dict.fromkeys(_machine(engine, facts) for each in records for engine, facts in each.machine.items())
    facts = {
        "state": state,
        "begun": str(record.get("created", "")),
        "took": f"{attempt['seconds']:.1f} s" if "seconds" in attempt else "",
        "seed": str(config.get("seed", "")),
        "settings": f"sha256 {sealed.digest_of(config)[:16]}" if config else "",
        "origin": runs.describe_origin(root, graph.run),
        "model": " ".join(str(value) for value in anchor.values() if value),
        "software": ", ".join(f"{name} {value}" for name, value in record.get("software", {}).items()),
        "hardware": "; ".join(machines),
        "hosts": ", ".join(dict.fromkeys(each.host for each in records if each.host)),
    }
    return {label: value for label, value in facts.items() if value}


def _machine(engine: str, facts: Any) -> str:
    parts = [str(facts[name]) for name in ("device", "dtype") if name in facts]
    return f"{engine}: {', '.join(parts) or ', '.join(f'{name} {value}' for name, value in facts.items())}"
