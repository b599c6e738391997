"""Outcomes of runs: accuracies of the anchor and of the selected checkpoint, what ran, and how long it took."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from infuser_core.store import runs
from infuser_core.store.catalogue import Catalogue
from infuser_core.store.journal import Entry, Journal
from infuser_core.store.views import Lens


def count_phases(entries: Sequence[Entry]) -> dict[str, dict[str, float]]:
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
    with closing(Lens(Catalogue(root), runs=[name])) as lens:
        chosen = lens.query("select selected_iteration from selections")
        selected = chosen[0]["selected_iteration"] if chosen else None
        scores = lens.query(
            "select iteration, s.* exclude (iteration) from benchmark_scores s where phase = 'evaluate'"
        )
        seen = lens.query("select benchmark, share from leaks order by benchmark")
    attempt = runs.read_attempt(root, name)
    return {
        "run": name,
        "benchmarks": _benchmarks(scores, selected),
        "selected_iteration": selected,
        "seen_in_validation": {row["benchmark"]: row["share"] for row in seen},
        "phases": count_phases(Journal(root, name).last_attempt()),
        "seconds": attempt.get("seconds"),
        "peak_memory_mb": attempt.get("peak_memory_mb"),
    }


def _benchmarks(scores: Sequence[Mapping[str, Any]], selected: int | None) -> dict[str, Any]:
    found = {(row["benchmark"], row["iteration"]): row for row in scores}
    return {
        label: {
            "anchor": found[label, 0]["accuracy"],
            "selected": best["accuracy"],
            "low": best["low"],
            "high": best["high"],
            "questions": best["num_questions"],
        }
        for label in sorted({row["benchmark"] for row in scores})
        if (best := found.get((label, selected))) and (label, 0) in found
    }


def describe_result(root: Path, name: str) -> str:
    """The run's outcome as a few lines for a terminal."""
    found = result(root, name)
    ran, cached = (sum(int(phase[state]) for phase in found["phases"].values()) for state in ("ran", "cached"))
    lines = [
        f"run {name}: {_known(found['seconds'])} s, peak memory {_known(found['peak_memory_mb'])} MB",
        f"stages: {ran} ran, {cached} cached; selected iteration {_known(found['selected_iteration'])}",
    ]
    lines += [
        f"{label}: {share:.1%} of its questions are in the validation set that chose the checkpoint"
        for label, share in found["seen_in_validation"].items()
        if share
    ]
    lines += [
        f"{label:16} anchor {score['anchor']:.3f} -> selected {score['selected']:.3f} "
        f"[{score['low']:.3f}, {score['high']:.3f}] ({score['questions']} questions)"
        for label, score in found["benchmarks"].items()
    ]
    return "\n".join([*lines, f"report: {runs.report_folder(root, name) / 'report.html'}"])


def _known(value: float | None) -> str:
    return "-" if value is None else str(value)
