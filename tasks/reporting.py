"""The report of a run: a view of the store, written beside the run's record."""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from infuser_core import durable
from infuser_core.config.run import RunConfig
from infuser_core.errors import UsageError
from infuser_core.report import habits, page
from infuser_core.report.build import ReportFiles, build, save_figures
from infuser_core.report.content import Query, Section
from infuser_core.report.habits import special_tokens
from infuser_core.report.mixture import mixture
from infuser_core.report.others import Answered
from infuser_core.report.paper_tables import Wanted, published
from infuser_core.report.quality import quality
from infuser_core.report.queries import choose, with_sql
from infuser_core.report.several import several
from infuser_core.store import runs
from infuser_core.store.runs import Journal
from infuser_core.store.store import Store
from infuser_core.store.views import Lens
from tasks import lineage
from tasks.quality_record import read
from tasks.run import Run, peak_memory_mb, report_folder


def added(root: Path, run: str, query: Query) -> list[Section]:
    """The sections in reading order."""
    specials = special_tokens(root, run)
    return [
        quality(read(root, run)),
        with_sql(query, lambda asked: habits.section(habits.look(asked, run, specials=specials))),
        with_sql(query, lambda asked: mixture(asked, run)),
    ]


NANO_NOTES = (
    "The nano lab's headroom is constructed: its anchor was pre-trained to follow a sound method less than half of "
    "the time, so that reinforcement learning has something to gain.",
    "What drives the gain here is mostly key quality: the influence reward teaches the generator to write right "
    "reference answers, and to a lesser part to choose the target's topics.",
)


def write_report(run: Run) -> None:
    """Refresh the report if anything ran in this attempt, and record what the attempt cost."""
    root = run.store.root
    attempt = run.journal.last_attempt()
    shown = report_folder(root, run.name) / "report.html"
    if not shown.exists() or any(entry.state == "ran" for entry in attempt):
        run.console.start("report", -1)
        report(root, run.name)
    _record_attempt(run)
    if run.published:
        lineage.show_lineage(run)
    run.journal.finish()


def find_runs(root: Path, names: Sequence[str]) -> list[str]:
    """Runs by name, once each; the latest without names. Raises UsageError for one that does not exist."""
    return list(dict.fromkeys(runs.find_run(root, name) for name in names)) or [runs.find_run(root, None)]


def finished_runs(root: Path, names: Sequence[str]) -> list[str]:
    """Runs by name, once each; without names all that are finished. Raises UsageError when none is."""
    found = find_runs(root, names) if names else [n for n in runs.list_runs(root) if Journal(root, n).is_finished()]
    if not found:
        raise UsageError("no finished runs to compare", hint="name runs, or finish one")
    return found


def report(
    root: Path, name: str, *, compare_with: str | None = None, html: Path | None = None, figures: Path | None = None
) -> ReportFiles:
    """Build the report of a run, optionally beside another one's curve, as a copy too and with its charts as files."""
    names = [name] if compare_with is None else [name, compare_with]
    raw = runs.read_config(root, name)
    lens = Lens(Store(root), runs=names)
    try:
        files = build(
            lens.query,
            run=name,
            out=report_folder(root, name),
            compare_with=compare_with,
            notes=_notes(RunConfig.model_validate(raw), lens, name),
            chosen=choose({name: raw})[0],
            answered=answered(root, [name]),
            added=added(root, name, lens.query),
            figures=figures,
        )
    finally:
        lens.close()
    if html is not None:
        durable.write(html, files.html.read_bytes())
    return files


def report_several(
    root: Path, names: Sequence[str], *, html: Path, figures: Path | None = None, heading: str = ""
) -> list[Path]:
    """One page for several runs, and its charts as files in the folder `figures`; returns what was written."""
    lens = Lens(Store(root), runs=list(names))
    try:
        found = several(
            lens.query,
            choose({name: runs.read_config(root, name) for name in names}),
            answered=answered(root, names),
            heading=heading,
        )
        durable.write(html, page.render(found))
        return [html, *(save_figures(found, figures) if figures is not None else [])]
    finally:
        lens.close()


def publish(root: Path | None, names: Sequence[str], wanted: Wanted) -> str:
    """Publication tables of these runs beside the paper's; without runs the paper's alone."""
    if root is None:
        return published(None, (), wanted)
    chosen = find_runs(root, names)
    lens = Lens(Store(root), runs=chosen)
    try:
        return published(lens.query, choose({name: runs.read_config(root, name) for name in chosen}), wanted)
    finally:
        lens.close()


def answered(root: Path, names: Sequence[str]) -> list[Answered]:
    """Examinations of these runs' generated questions, made by `infuser swg`."""
    found = []
    for record in sorted((root / "evaluations").glob("*/evaluation.json")):
        scores = record.parent / "question_scores.parquet"
        if not scores.exists():
            continue
        facts = json.loads(record.read_text(encoding="utf-8"))
        for sheet in facts["sheets"]:
            run, _, iteration = str(sheet["label"]).rpartition("-questions-")
            if run in names and iteration.isdigit():
                found.append(
                    Answered(
                        run=run,
                        iteration=int(iteration),
                        solver=str(facts["model"]),
                        scores=scores,
                        asked=record.stat().st_mtime,
                    )
                )
    return found


def comparison_page(root: Path, name: str, other: str) -> Path:
    """The run's report beside another run's curve, written again only if one of them moved."""
    shown = report_folder(root, name) / "report.html"
    moved = any(entry.state == "ran" for run in (name, other) for entry in Journal(root, run).last_attempt())
    return report(root, name, compare_with=other).html if moved or not shown.exists() else shown


def _notes(config: RunConfig, lens: Lens, name: str) -> list[str]:
    notes = list(NANO_NOTES) if config.anchor.type == "nano" else []
    silent = lens.query("select iteration from gradients where run = ? and norm = 0 order by iteration", [name])
    if silent:
        first = silent[0]["iteration"]
        notes.append(
            f"Dev signal exhausted in {len(silent)} iterations, first in iteration {first}: every dev group had zero "
            "variance, so scores are 0 and the generator's update was skipped there."
        )
    return notes


def _record_attempt(run: Run) -> None:
    entries = run.journal.last_attempt()
    path = runs.runs_folder(run.store.root) / run.name / "attempt.json"
    record = {
        "seconds": round(time.monotonic() - run.started, 3),
        "peak_memory_mb": round(peak_memory_mb(), 1),
        "phases": count_phases(entries),
    }
    path.write_text(json.dumps(record, indent=1) + "\n")


def count_phases(entries: list[runs.Entry]) -> dict[str, dict[str, float]]:
    """Per phase, how many stages ran or were found, and the seconds spent."""
    phases: dict[str, dict[str, float]] = {}
    for entry in entries:
        facts = phases.setdefault(entry.phase, {"ran": 0, "cached": 0, "seconds": 0.0})
        if entry.state in facts:
            facts[entry.state] += 1
        facts["seconds"] = round(facts["seconds"] + entry.seconds, 4)
    return phases


def result(root: Path, name: str) -> dict[str, Any]:
    """The run's outcome as one JSON object."""
    lens = Lens(Store(root), runs=[name])
    try:
        chosen = lens.query("select selected_iteration from selections")
        selected = chosen[0]["selected_iteration"] if chosen else None
        scores = lens.query(
            "select iteration, s.* exclude (iteration) from benchmark_scores s where phase = 'evaluate'"
        )
        seen = lens.query("select benchmark, num_questions, num_seen, share from leaks order by benchmark")
    finally:
        lens.close()
    path = runs.runs_folder(root) / name / "attempt.json"
    attempt = json.loads(path.read_text()) if path.exists() else {}
    return {
        "run": name,
        "benchmarks": _benchmarks(scores, selected),
        "selected_iteration": selected,
        "seen_in_validation": {row["benchmark"]: row["share"] for row in seen},
        "phases": count_phases(Journal(root, name).last_attempt()),
        "seconds": attempt.get("seconds"),
        "peak_memory_mb": attempt.get("peak_memory_mb"),
    }


def describe_result(root: Path, name: str) -> str:
    """The run's outcome as a few lines for a terminal."""
    found = result(root, name)
    ran, cached = (sum(int(phase[state]) for phase in found["phases"].values()) for state in ("ran", "cached"))
    lines = [
        f"run {name}: {found['seconds']} s, peak memory {found['peak_memory_mb']} MB",
        f"stages: {ran} ran, {cached} cached; selected iteration {found['selected_iteration']}",
    ]
    lines += [
        f"{label}: {share:.1%} of its questions are in the validation set that chose the checkpoint"
        for label, share in found["seen_in_validation"].items()
        if share
    ]
    for label, score in found["benchmarks"].items():
        lines.append(
            f"{label:16} anchor {score['anchor']:.3f} -> selected {score['selected']:.3f} "
            f"[{score['low']:.3f}, {score['high']:.3f}] ({score['questions']} questions)"
        )
    return "\n".join([*lines, f"report: {report_folder(root, name) / 'report.html'}"])


def _benchmarks(scores: list[dict[str, Any]], selected: int | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for label in sorted({row["benchmark"] for row in scores}):
        by_iteration = {row["iteration"]: row for row in scores if row["benchmark"] == label}
        best = by_iteration.get(selected)
        if best is None or 0 not in by_iteration:
            continue
        found[label] = {
            "anchor": by_iteration[0]["accuracy"],
            "selected": best["accuracy"],
            "low": best["low"],
            "high": best["high"],
            "questions": best["num_questions"],
        }
    return found
