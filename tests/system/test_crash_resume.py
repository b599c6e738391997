"""Killed at any moment, a run goes on from the last completed stage and ends in the same bits as an undisturbed one.

Named points kill the run with SIGKILL; each time one command resumes it. The pipeline is cut into chains, which other
workers may run at the same time. Every stage is killed once with its artifact incomplete and once with it complete, the
kinds of points taking turns; INFUSER_CRASH_SWEEP=all kills at every point of every stage.
"""

import os
import signal
from pathlib import Path

import pytest
from crash_points import (
    COMPLETE,
    CORPUS,
    FIRST,
    LAST,
    PHASES,
    POINTS,
    SECOND,
    Point,
    content,
    forget_newest,
    mismatches,
    orphans,
    passed,
    points_of,
)
from launcher import Launcher, SmallRun, copy_store

from infuser_core.store.journal import Journal
from infuser_core.store.recipe import MANIFEST
from infuser_core.store.runs import is_held

# The second iteration, whose AdamW moments come from the first, and whatever else repeats.
AGAIN = ["rollout_dev:inside", "update_generator:start", "update_solver:before_rename", "respond:inside"]
CHAINS = {"corpus": CORPUS, "first half": FIRST, "second half": SECOND, "last": LAST}


def kills_of(chain: str) -> list[str]:
    points = [point.name for phase in CHAINS[chain] for point in chosen_points(phase)]
    return [*points, *(AGAIN if chain == "second half" else [])]


def chosen_points(phase: str) -> list[Point]:
    """All points of a phase, or one of each sort: phases take turns with the kinds."""
    points = points_of(phase)
    if os.environ.get("INFUSER_CRASH_SWEEP") == "all":
        return points
    turn = PHASES.index(phase)
    sorts = [[point for point in points if point.complete == complete] for complete in (False, True)]
    return [sort[turn % len(sort)] for sort in sorts if sort]


def kill_everywhere(launch: Launcher, run: SmallRun, store: Path, chain: str, listing: Path) -> None:
    """One attempt per point. Two points of a stage leave its artifact complete: it is taken away between them."""
    arguments = run.arguments
    for kill in kills_of(chain):
        before = set((store / "artifacts").glob("*/*"))
        killed = launch(*arguments, store=store, INFUSER_CRASH_AT=kill, INFUSER_POINTS=str(listing))
        assert killed.code == -signal.SIGKILL, f"{kill}: {killed}"
        arguments = ["resume", run.name]
        assert not is_held(store, run.name)
        assert not Journal(store, run.name).is_finished()
        half = [folder for folder in (store / "artifacts").glob("*/*") if not (folder / MANIFEST).is_file()]
        assert half == [], f"half an artifact after {kill}"
        if kill.endswith(":after_rename"):
            forget_newest(store, kill.partition(":")[0], before)


def test_the_turns_reach_every_kind_of_point():
    kinds = {point.kind for phase in PHASES for point in chosen_points(phase)}
    assert kinds >= {*POINTS}


def test_every_stage_of_the_pipeline_is_in_a_chain():
    assert sorted(phase for phases in CHAINS.values() for phase in phases) == sorted(PHASES)
    assert {Point(phase=phase, kind=kind).complete for phase in PHASES for kind in COMPLETE} == {True}
    for phase in set(PHASES) - {"eval"}:
        kinds = [point.kind for point in points_of(phase)]
        assert kinds == [kind for kind in POINTS if kind in kinds]
        assert {"start", "before_commit", "before_rename", "after_rename", "journalled"} <= set(kinds)


@pytest.mark.slow
@pytest.mark.parametrize(
    "chain", [name if name == "second half" else pytest.param(name, marks=pytest.mark.long) for name in CHAINS]
)
def test_a_run_that_is_killed_at_every_point_ends_in_the_same_bits(
    launch: Launcher, small_run: SmallRun, tmp_path: Path, chain: str
):
    store, listing = tmp_path / "store", tmp_path / "points"
    store.mkdir()
    if chain != "corpus":
        reached = PHASES[: PHASES.index(CHAINS[chain][0])]
        # What comes before is there already; phases of the loop repeat, so only the corpus can be handed over whole.
        done = CORPUS if chain in ("first half", "second half") else reached
        copy_store(small_run.root, store, without=tuple(phase for phase in PHASES if phase not in done))
    kill_everywhere(launch, small_run, store, chain, listing)

    finished = launch("resume", small_run.name, store=store, INFUSER_POINTS=str(listing))
    assert finished.code == 0, finished.err
    assert list(orphans(store)) == []
    assert mismatches(content(small_run.root, small_run.name), content(store, small_run.name)) == []
    digests = [launch("status", "--digest", small_run.name, store=root).out for root in (store, small_run.root)]
    assert digests[0] == digests[1]

    met = {point.name for point in passed(listing) if point.phase in CHAINS[chain]}
    assert met == {point.name for phase in CHAINS[chain] for point in points_of(phase)}
    if chain == "corpus":
        assert {point.phase for point in passed(listing)} == set(PHASES), "a new stage needs its place in a chain"
