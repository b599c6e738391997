"""Outcome of a run: accuracies of the anchor (base model) and the selected checkpoint, stages, time and memory."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

from infuser_core.errors import quantity
from infuser_core.results.lineage.run_warnings import RunWarning, run_warnings
from infuser_core.store import runs
from infuser_core.store.journal import Entry, Journal
from infuser_core.store.store import Store
from infuser_core.store.views import Lens, Rows
from infuser_core.terminal import format_duration

_RESULTS = """with chosen as (select min(selected_iteration) as chosen from selections where run = $run),
    scored as (select distinct benchmark, iteration, chosen, accuracy, low, high, num_questions, num_samples, unverified
        from benchmark_scores, chosen where run = $run and phase = 'evaluate' and iteration in (0, chosen))
    select benchmark, any_value(accuracy) filter (iteration = 0) as anchor,
        any_value(low) filter (iteration = 0) as anchor_low, any_value(high) filter (iteration = 0) as anchor_high,
        any_value(accuracy) filter (iteration = chosen) as selected, any_value(low) filter (iteration = chosen) as low,
        any_value(high) filter (iteration = chosen) as high, arg_max(num_questions, iteration) as questions,
        arg_max(num_samples, iteration) as samples, arg_max(unverified, iteration) as unverified,
        any_value(chosen) as iteration
    from scored group by benchmark order by benchmark"""


def count_phases(entries: Sequence[Entry]) -> dict[str, dict[str, float]]:
    """Count stages that ran and that were cached, and their seconds, by phase."""
    phases: dict[str, dict[str, float]] = {}
    for entry in entries:
        facts = phases.setdefault(entry.phase, {"ran": 0, "cached": 0, "seconds": 0.0})
        if entry.state in facts:
            facts[entry.state] += 1
        facts["seconds"] = round(facts["seconds"] + entry.seconds, 4)
    return phases


def result(root: Path, name: str) -> dict[str, Any]:
    """The run's outcome as one JSON object."""
    with closing(Lens(Store(root), runs=[name])) as lens:
        selections = lens.query("select selected_iteration from selections")
        selected = selections[0]["selected_iteration"] if selections else None
        scores = results(lens.query, name)
        leaks = lens.query("select benchmark, share from leaks order by benchmark")
        warnings = run_warnings(lens, name)
    attempt = runs.read_attempt(root, name)
    return {
        "run": name,
        "benchmarks": {
            row["benchmark"]: {column: row[column] for column in ("anchor", "selected", "low", "high", "questions")}
            for row in scores
            if None not in (row["anchor"], row["selected"])
        },
        "selected_iteration": selected,
        "seen_in_validation": {row["benchmark"]: row["share"] for row in leaks},
        "warnings": [asdict(warning) for warning in warnings],
        "phases": count_phases(Journal(root, name).last_attempt()),
        "seconds": attempt.get("seconds"),
        "peak_memory_mb": attempt.get("peak_memory_mb"),
    }


def results(query: Callable[[str], Rows], run: str) -> Rows:
    """Accuracy of the anchor and the selected checkpoint on every benchmark; None if not measured."""
    return query(_RESULTS.replace("$run", "'" + run.replace("'", "''") + "'"))


def describe_result(root: Path, name: str) -> str:
    """The run's outcome as a few lines for a terminal."""
    outcome = result(root, name)
    ran, cached = (sum(int(phase[state]) for phase in outcome["phases"].values()) for state in ("ran", "cached"))
    seconds, selected = outcome["seconds"], outcome["selected_iteration"]
    time = "not complete" if seconds is None else f"last start took {format_duration(seconds)}"
    memory = f", peak memory {outcome['peak_memory_mb']} MB" if outcome["peak_memory_mb"] else ""
    checkpoint = "no checkpoint yet" if selected is None else f"the checkpoint after {quantity(selected, 'iteration')}"
    lines = [f"run {name}: {time}{memory}", f"stages: {ran} ran, {cached} cached; selected {checkpoint}"]
    lines += [
        f"{label:16} anchor {score['anchor']:.3f} -> selected {score['selected']:.3f} "
        f"[{score['low']:.3f}, {score['high']:.3f}] ({quantity(score['questions'], 'question')})"
        for label, score in outcome["benchmarks"].items()
    ]
    lines += _warning_lines(RunWarning(**warning) for warning in outcome["warnings"])
    page = runs.report_folder(root, name) / "report.html"
    return "\n".join([*lines, f"report: {page}" if page.exists() else f"no report yet: `infuser report {name}`"])


def describe_warnings(root: Path, name: str) -> list[str]:
    """The warnings about a run, finished or not, as lines for a terminal."""
    with closing(Lens(Store(root), runs=[name])) as lens:
        return _warning_lines(run_warnings(lens, name))


def _warning_lines(warnings: Iterable[RunWarning]) -> list[str]:
    return [f"warning: {warning}" for warning in warnings]


ENDS = 3
"""Number of iterations at the start and at the end of a run whose keys are counted."""
_SIDES = {"target": True, "other": False}


def count_keys(query: Callable[[str], list[dict[str, Any]]], run: str) -> dict[str, dict[str, tuple[int, int]]]:
    """Count right keys and labelled questions of the first and last iterations, on `target` topics and on others."""
    rows = query(f"""
        select iteration, topic in (select subdomain from reference_questions where run = '{run}') as aimed,
            count(*) as questions, count(*) filter (key = 'sound') as sound
        from question_labels where run = '{run}' and key <> 'unknown' group by all""")
    if not rows:
        return {}
    last = max(int(row["iteration"]) for row in rows)
    spans = {"first": range(ENDS), "last": range(last - ENDS + 1, last + 1)}
    return {end: {side: _counted(rows, span, aimed) for side, aimed in _SIDES.items()} for end, span in spans.items()}


def _counted(rows: Sequence[Mapping[str, Any]], span: range, aimed: bool) -> tuple[int, int]:
    mine = [row for row in rows if row["aimed"] == aimed and row["iteration"] in span]
    return sum(int(row["sound"]) for row in mine), sum(int(row["questions"]) for row in mine)


def describe_keys(root: Path, name: str) -> str:
    """Right keys and topics of the generator's questions at the start and the end, as two lines for a terminal."""
    with closing(Lens(Store(root), runs=[name])) as lens:
        counts = count_keys(lens.query, name)
    if not counts:
        return "no question has a label"
    keys = {side: " -> ".join(_share(*counts[end][side]) for end in counts) for side in _SIDES}
    totals = [(sides["target"][1], sides["target"][1] + sides["other"][1]) for sides in counts.values()]
    on = " -> ".join(_share(*pair) for pair in totals)
    return (
        f"right keys, first {ENDS} -> last {ENDS} iterations: on the dev set's topics {keys['target']}, "
        f"elsewhere {keys['other']}\nquestions on the dev set's topics: {on} of all"
    )


def _share(part: int, total: int) -> str:
    return f"{part / total:.2f}" if total else "-"
