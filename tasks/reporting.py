"""The last stage of a run: its report, written beside the run's record."""

import json
import time

from infuser_core.report.build import count_phases, report, report_folder
from infuser_core.store import runs
from tasks import lineage
from tasks.run import Run, peak_memory_mb


def write_report(run: Run) -> None:
    """Refresh the report if anything ran in this attempt, and record what the attempt cost."""
    root = run.store.root
    attempt = run.journal.last_attempt()
    shown = report_folder(root, run.name) / "report.html"
    if not shown.exists() or any(entry.state == "ran" for entry in attempt):
        run.console.start("report", -1)
        report(root, run.name)
    record = {
        "seconds": round(time.monotonic() - run.started, 3),
        "peak_memory_mb": round(peak_memory_mb(), 1),
        "phases": count_phases(run.journal.last_attempt()),
    }
    (runs.runs_folder(root) / run.name / "attempt.json").write_text(json.dumps(record, indent=1) + "\n")
    if run.published:
        lineage.show_lineage(run)
    run.journal.finish()
