"""Killed at any moment, a run goes on from the last completed phase and ends in the same bits as an undisturbed one.

One run is killed with SIGKILL again and again, each time at another point, and resumed by one command.
"""

import signal
from pathlib import Path

import pytest
from launcher import Launcher, SmallRun

from infuser_core.runs import Journal, is_held
from infuser_core.store import MANIFEST

# In the order of the pipeline. `inside` is between two batches of a sampler or two steps of an optimizer. A phase that
# was killed after its rename is complete, so the points that follow belong to the next phase or iteration.
KILLS = [
    "convert:inside",
    "rollout_dev:before_commit",
    "rollout_dev:after_rename",
    "dev_gradient:before_rename",
    "dev_gradient:journalled",
    "generate_questions:inside",
    "generate_questions:after_rename",
    "rollout_questions:before_commit",
    "rollout_questions:journalled",
    "score_influence:before_rename",
    "score_influence:after_rename",
    "update_generator:inside:2",
    "update_generator:after_rename",
    "update_solver:inside:2",
    "update_solver:before_rename",
    "update_solver:journalled",
    # The second iteration, whose AdamW moments come from the first.
    "update_generator:start",
    "update_solver:before_commit",
    "evaluate:after_rename",
]
SEVEN = "rollout_dev dev_gradient generate_questions rollout_questions score_influence update_generator update_solver"


def files_of(folder: Path) -> dict[str, bytes]:
    """All that an artifact consists of, but the record of when and where it was made."""
    paths = [path for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def test_every_phase_boundary_is_among_the_points():
    points = {tuple(kill.split(":")[:2]) for kill in KILLS}
    complete = {"after_rename", "journalled"}
    assert {phase for phase, point in points if point in complete} >= {*SEVEN.split()}
    assert {phase for phase, point in points if point not in complete} >= {*SEVEN.split()}
    assert len({phase for phase, point in points if point == "inside"}) >= 2
    assert {point for _, point in points} == {
        *["start", "inside", "before_commit", "before_rename", "after_rename", "journalled"]
    }


@pytest.mark.slow
def test_a_run_that_is_killed_again_and_again_ends_in_the_same_bits(
    launch: Launcher, small_run: SmallRun, tmp_path: Path
):
    store = tmp_path / "store"
    arguments = small_run.arguments
    for kill in KILLS:
        killed = launch(*arguments, store=store, INFUSER_CRASH_AT=kill)
        assert killed.code == -signal.SIGKILL, f"{kill}: {killed}"
        arguments = ["resume", small_run.name]
        assert not is_held(store, small_run.name)
        assert not Journal(store, small_run.name).is_finished()
        incomplete = [folder for folder in (store / "artifacts").glob("*/*") if not (folder / MANIFEST).is_file()]
        assert incomplete == [], f"half an artifact after {kill}"

    finished = launch(*arguments, store=store)
    assert finished.code == 0, finished.err
    assert list((store / ".staging").iterdir()) == [], "what killed processes left is swept away"

    digests = [launch("digest", small_run.name, store=root).out for root in (store, small_run.root)]
    assert digests[0] == digests[1]
    for phase in ("update_generator", "update_solver"):
        undisturbed = small_run.checkpoint(phase, 1)
        resumed = store / Path(undisturbed.path).relative_to(small_run.root)
        assert "optimizer.safetensors" in files_of(resumed)
        assert files_of(resumed) == files_of(Path(undisturbed.path))

    again = launch(*small_run.arguments, store=store)
    assert again.code == 0 and {entry.state for entry in Journal(store, small_run.name).last_attempt()} == {"cached"}
