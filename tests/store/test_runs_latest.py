"""Without a name, commands mean the run that was last active, or the one marked as such."""

import time
from pathlib import Path

from infuser_core.store.runs import Journal, create_run, find_run, mark_latest


def test_the_marked_run_is_the_latest(tmp_path: Path) -> None:
    for name in ("first", "second"):
        create_run(tmp_path, name, {})
        journal = Journal(tmp_path, name)
        journal.start_attempt()
        journal.append(phase="questions", iteration=-1, state="ran", seconds=0.0)
    assert find_run(tmp_path, None) == "second"
    # File times tick every few milliseconds.
    time.sleep(0.05)
    mark_latest(tmp_path, "first")
    assert find_run(tmp_path, None) == "first"
