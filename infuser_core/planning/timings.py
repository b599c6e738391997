"""Measured times and lengths of a run, on which the cost model is calibrated."""

from dataclasses import replace
from pathlib import Path
from statistics import fmean, median

from infuser_core.capacity.asked import Asked
from infuser_core.capacity.calibrate import Observed
from infuser_core.capacity.phases import ORDER
from infuser_core.capacity.volume import within
from infuser_core.config.overlays import validate
from infuser_core.errors import UsageError
from infuser_core.store.runs import Entry, Journal, find_run, read_config
from infuser_core.store.store import Store, read_manifest

RESPONSES = {"rollout_dev": "dev_response", "rollout_questions": "solver_response"}
"""Phases whose summary counts response tokens, and the length that they tell."""


def observed(root: Path, name: str, gpus: str) -> Observed:
    """The run on `gpus`. Raises UsageError for a run of which no phase ran to its end."""
    run = find_run(root, name)
    entries = [each for each in Journal(root, run).entries() if each.state == "ran" and each.phase in ORDER]
    # Loading and compiling belong to a start, not to an iteration.
    first = min((each.iteration for each in entries), default=0)
    settled = [each for each in entries if each.iteration > first] or entries
    if not settled:
        raise UsageError(f"--calibrate {name}: no phase of it ran", hint="give a run that computed an iteration")
    seconds = {
        phase: median(each.seconds for each in settled if each.phase == phase)
        for phase in ORDER
        if any(each.phase == phase for each in settled)
    }
    return Observed(run=run, asked=_measured(Store(root), run, gpus, settled), seconds=seconds)


def _measured(store: Store, run: str, gpus: str, entries: list[Entry]) -> Asked:
    """The question with the run's own mean lengths and share of valid questions, where its summaries tell them."""
    config = validate(read_config(store.root, run))
    asked = Asked.of(config, gpus)
    told: dict[str, list[float]] = {}
    for entry in entries:
        manifest = read_manifest(store.folder(entry.phase, entry.key))
        summary, rows = manifest.summary, manifest.rows.get("rollouts", 0)
        if entry.phase in RESPONSES and rows:
            told.setdefault(RESPONSES[entry.phase], []).append(max(1.0, summary["tokens"] / rows))
        if entry.phase == "generate_questions" and summary.get("written"):
            told.setdefault("valid", []).append(summary["valid"] / summary["written"])
    lengths = replace(asked.lengths, **{name: fmean(values) for name, values in told.items()})
    return replace(asked, lengths=within(lengths, config.cotrain))
