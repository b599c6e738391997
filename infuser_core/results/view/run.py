"""Contents of a run's page in the viewer and in reports: progress, verdict, charts, examples, time, provenance."""

from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import yaml

from infuser_core.config.phase_table import LOOP, Phase
from infuser_core.config.run import RunConfig
from infuser_core.results.lineage import progress
from infuser_core.results.lineage.attempts import state_of
from infuser_core.results.lineage.graph import Graph, graph_of
from infuser_core.results.report.queries import flat
from infuser_core.results.view.charts import charts
from infuser_core.results.view.verdict import gains
from infuser_core.store import lease, runs
from infuser_core.store.journal import Journal
from infuser_core.store.store import Store
from infuser_core.store.views import Lens
from infuser_core.system import sealed
from infuser_core.terminal import format_duration

MOST_PARTS = 40
"""Most iterations that are listed; the latest are shown."""
EXAMPLES = 3
"""Number of best questions, of worst questions and of malformed texts on the page."""
_PACE = 5
"""Number of the latest iterations whose mean time gives the remaining time."""
_TIME = """select l.phase, count(*) as artifacts, sum(a.rows)::bigint as rows, sum(a.seconds) as seconds,
    sum(a.seconds) / nullif(sum(sum(a.seconds)) over (), 0) as share
    from run_artifacts l join artifacts a on a.artifact_key = l.artifact_key
    group by l.phase order by sum(a.seconds) desc, l.phase"""
_PASSES = """select role, work, device, count(*) as passes,
    sum(computed_tokens) / sum(seconds) as tokens_per_second, sum(flops) / sum(seconds) as flops_per_second,
    sum(mfu * seconds) / sum(seconds) as mfu, sum(idle_share * seconds) / sum(seconds) as idle_share,
    max(peak_memory) as peak_memory
    from step_costs group by all order by all"""
_EXAMPLES = """select q.question_id, q.text, q.choices, q.answer, s.score, s.status, s.solver_accuracy
    from questions q left join scores s on s.question_id = q.question_id where q.phase = 'generate_questions'
    qualify row_number() over (
        partition by q.text, q.choices, q.answer order by s.score desc nulls last, q.question_id) = 1
    order by s.score desc nulls last, q.question_id"""
_MALFORMED = """select rollout_id, malformed_reason, text from rollouts where phase = 'generate_questions'
    and malformed_reason <> '' order by rollout_id limit $count"""


def run_page(root: Path, name: str, lens: Lens) -> dict[str, Any]:
    """Template variables of a run's page."""
    state = state_of(root, name)
    record = dict(runs.read_run_or_empty(root, name))
    return {
        **live_parts(root, name, state, record.get("config", {})),
        **verdict_parts(root, name, lens),
        "facts": provenance(root, graph_of(lens.catalogue, name), record, state),
        "config": yaml.safe_dump(record.get("config", {}), sort_keys=False, allow_unicode=True),
        "differing": without_defaults(record.get("config", {})),
        "charts": [chart.to_json() for chart in charts(lens, {name: name})],
        "phases": lens.query(_TIME),
        "passes": lens.query(_PASSES),
        "examples": examples(lens, name),
    }


def verdict_parts(root: Path, name: str, lens: Lens) -> dict[str, Any]:
    """Template variables of the verdict: the gains of a run and of its control."""
    control = runs.control_of(root, name)
    parts = {"name": name, "gains": gains(lens, name), "control": control, "control_gains": []}
    if control:
        with closing(Lens(Store(root), runs=[control], catalogue=lens.catalogue)) as other:
            parts["control_gains"] = gains(other, control)
    return parts


def live_parts(root: Path, name: str, state: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Template variables that change while the run is executed: state, progress and the list of iterations."""
    parts = progress.parts_of(root, name, state=state)
    return {
        "name": name,
        "state": state,
        "progress": run_progress(root, name, state, config),
        "parts": parts[-MOST_PARTS:],
        "earlier": len(parts[:-MOST_PARTS]),
    }


def run_progress(root: Path, name: str, state: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Progress of a run: `done` and `total` iterations, the current `stage`, time per iteration and remaining time."""
    total = int(config.get("cotrain", {}).get("iterations", 0))
    entries = Journal(root, name).last_attempt()
    ends = {entry.iteration: entry.at for entry in entries if entry.phase in LOOP and entry.state != "failed"}
    updates = [entry.iteration + 1 for entry in entries if entry.phase == Phase.UPDATE_SOLVER]
    done, latest = max(updates, default=0), [ends[each] for each in sorted(ends)][-_PACE - 1 :]
    is_running = state == "running"
    pace = (latest[-1] - latest[0]) / (len(latest) - 1) if is_running and len(latest) > 1 else None
    return {
        "done": done,
        "total": total,
        "stage": lease.current_stages(runs.runs_folder(root) / name).partition(",")[0] if is_running else "",
        "pace": pace,
        "remaining": format_duration(pace * (total - done)) if pace and total > done else "",
        "took": "" if is_running else format_duration(_stage_seconds(root, name)),
    }


def _stage_seconds(root: Path, name: str) -> float:
    """Seconds of all stages that the run computed, in any of its starts."""
    return sum(entry.seconds for entry in Journal(root, name).entries() if entry.state == "ran")


def latest_questions(root: Path, name: str) -> int | None:
    """The latest iteration with scored questions, or else with questions; None before the first."""
    entries = Journal(root, name).latest()
    phases = (Phase.SCORE_INFLUENCE, Phase.GENERATE_QUESTIONS)
    iterations = ([entry.iteration for entry in entries if entry.phase == phase] for phase in phases)
    return max(next(filter(None, iterations), []), default=None)


def examples(lens: Lens, name: str, iteration: int | None = None) -> dict[str, Any]:
    """Questions of one iteration (by default the latest that has them) with the highest and lowest influence, and
    malformed texts; empty before the first questions."""
    root = lens.catalogue.root
    number = latest_questions(root, name) if iteration is None else iteration
    if number is None:
        return {}
    with closing(Lens(Store(root), runs=[name], iterations=[number], catalogue=lens.catalogue)) as one:
        questions, malformed = one.query(_EXAMPLES), one.query(_MALFORMED, {"count": EXAMPLES})
    measured = [row for row in questions if row["status"] == "scored"] or questions
    worst = measured[EXAMPLES:][-EXAMPLES:][::-1]
    return {"iteration": number, "best": measured[:EXAMPLES], "worst": worst, "malformed": malformed}


def without_defaults(config: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a run that differ from the defaults, by dotted name; all if this version cannot read them."""
    with suppress(ValueError):
        config = RunConfig.model_validate(config).model_dump(mode="json", exclude_defaults=True)
    return flat(config)


def provenance(root: Path, graph: Graph, record: dict[str, Any], state: str) -> dict[str, str]:
    """Provenance of a run: date, seed, settings, model, software, hardware, as recorded."""
    config, records = record.get("config", {}), list(graph.records.values())
    anchor, seconds = config.get("anchor") or {}, _stage_seconds(root, graph.run)
    machines = dict.fromkeys(_machine(engine, facts) for each in records for engine, facts in each.machine.items())
    facts = {
        "state": state,
        "begun": str(record.get("created", "")),
        "computing time": format_duration(seconds) if seconds else "",
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
