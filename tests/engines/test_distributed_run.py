"""The nano iteration through Ray: two trainer ranks give the local trainer's artifacts, killed ranks change nothing."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from distributed_tiny import LIMIT, error, state_error
from launcher import Launcher, Started
from places import ROOT
from test_distributed_ranks import descendants, gone

from infuser_core.schemas import InfluenceScore, Rollout, StepCost, TrainerLogprobs
from infuser_core.store.journal import Entry, Journal
from infuser_core.store.recipe import ArtifactRef
from infuser_core.store.store import Store

pytestmark = pytest.mark.distributed

RANKS = ROOT / "configs/engine/deepspeed-cpu.yaml"
PHASES = ["dev_gradient", "score_influence", "update_generator", "update_solver"]
SMALL = {
    "data": {"dev": {"size": 8}, "validation": {"size": 16}},
    "cotrain": {
        "iterations": 1,
        "documents": 4,
        "group_size": 4,
        "validate_every": 1,
        "generator": {"minibatch": 2},
        "solver": {"minibatch": 4},
    },
    "evaluate": {"benchmarks": []},
}
NOTICED = 60.0
"""Seconds within which a killed rank ends its phase."""
PATIENCE = 900.0


def start(launch: Launcher, folder: Path, name: str, *overlays: Path, **environment: str) -> Started:
    """A run of its own in a store of its own."""
    small = folder / "small.yaml"
    small.write_text(yaml.safe_dump(SMALL))
    words = ["run", str(ROOT / "configs/nano.yaml"), str(small), *map(str, overlays), "--name", name]
    return launch.start(*words, store=folder / name, PYTHONPATH=str(ROOT), **environment)


def finished(running: Started) -> None:
    ended = running.wait(PATIENCE)
    assert ended.code == 0, ended.err


def entries(folder: Path, name: str, state: str) -> list[Entry]:
    return [entry for entry in Journal(folder / name, name).entries() if entry.state == state]


@pytest.fixture(scope="module")
def runs(launch: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two finished runs: `local`, and `ranks` that sleep while others work, one of them killed in the last phase."""
    folder = tmp_path_factory.mktemp("runs")
    turns = folder / "turns.yaml"
    turns.write_text("engine: {placement: colocated}")
    local = start(launch, folder, "local")
    kill(launch, folder, "ranks", PHASES[-1:], RANKS, turns)
    finished(local)
    return folder


def kill(launch: Launcher, folder: Path, name: str, phases: list[str], *overlays: Path) -> None:
    """A run on two ranks, of which one is killed in each of the phases; every such phase ends in time."""
    points = folder / f"{name}.points"
    points.touch()
    running = start(launch, folder, name, *overlays, INFUSER_POINTS=str(points))
    for phase in phases:
        until(running, lambda phase=phase: f"{phase}:start" in points.read_text().split())
        victim = until(running, lambda: next((pid for pid in descendants(running.pid) if works(pid)), 0))
        os.kill(victim, signal.SIGKILL)
        killed = time.monotonic()
        until(running, lambda phase=phase: any(entry.phase == phase for entry in entries(folder, name, "failed")))
        assert time.monotonic() - killed < NOTICED
    finished(running)
    failures = entries(folder, name, "failed")
    assert [entry.phase for entry in failures] == phases
    for entry in failures:
        assert "EngineError: rank " in entry.message and " died in " in entry.message


class Made:
    """A finished run's artifacts by phase."""

    def __init__(self, folder: Path, name: str) -> None:
        self.store = Store(folder / name)
        self._refs = {
            entry.phase: ArtifactRef(kind=entry.phase, key=entry.key, digest=entry.digest)
            for entry in entries(folder, name, "ran")
        }

    def rows(self, phase: str, table: str, kind: type) -> list:
        return self.store.rows(self._refs[phase], table, kind)

    def weights(self, phase: str) -> str:
        """The way that they took to the sampler."""
        return self.store.manifest(self._refs[phase]).machine["sampler"]["weights"]

    def folder(self, phase: str) -> Path:
        return self.store.verified_folder(self._refs[phase])


def test_two_ranks_of_which_one_was_killed_give_the_artifacts_of_one_process(runs: Path) -> None:
    one, two = Made(runs, "local"), Made(runs, "ranks")
    for phase in ("rollout_dev", "generate_questions", "rollout_questions"):
        drawn = [[row.token_ids for row in made.rows(phase, "rollouts", Rollout)] for made in (one, two)]
        assert drawn[0] == drawn[1] and drawn[0]
    assert (
        error(two.folder("dev_gradient") / "gradient.safetensors", one.folder("dev_gradient") / "gradient.safetensors")
        < LIMIT
    )
    scores = [made.rows("score_influence", "scores", InfluenceScore) for made in (one, two)]
    assert [row.status for row in scores[0]] == [row.status for row in scores[1]]
    assert any(row.cosine for row in scores[0])
    assert [row.cosine for row in scores[1]] == pytest.approx([row.cosine for row in scores[0]], abs=LIMIT)
    logprobs = [made.rows("score_influence", "trainer_logprobs", TrainerLogprobs) for made in (one, two)]
    for left, right in zip(*logprobs, strict=True):
        assert left.rollout_id == right.rollout_id and left.logprobs == pytest.approx(right.logprobs, abs=1e-5)
    for phase in ("update_generator", "update_solver"):
        assert state_error(two.folder(phase), one.folder(phase)) < LIMIT


def test_two_ranks_record_the_tokens_of_one_process_and_their_own_use(runs: Path) -> None:
    for phase in PHASES:
        one, two = (made.rows(phase, "step_costs", StepCost) for made in (Made(runs, "local"), Made(runs, "ranks")))
        counts = [
            [(row.work, row.step, row.num_tokens, row.computed_tokens, row.flops) for row in rows]
            for rows in (one, two)
        ]
        assert counts[0] == counts[1] and counts[0]
        assert all(0 <= row.idle_share < 1 and row.peak_memory > 0 and row.device for row in two)


@pytest.mark.long
def test_a_rank_killed_in_each_phase_is_named_and_the_run_ends_right(launch: Launcher, tmp_path: Path) -> None:
    finished(start(launch, tmp_path, "undisturbed", RANKS))
    kill(launch, tmp_path, "killed", PHASES, RANKS)
    digests = [
        {(entry.phase, entry.iteration): entry.digest for entry in entries(tmp_path, name, "ran")}
        for name in ("undisturbed", "killed")
    ]
    assert digests[0] == digests[1]
    assert not [pid for pid in descendants(os.getpid()) if works(pid)]


def works(pid: int) -> bool:
    """Whether a process is a rank in the middle of a call: Ray writes that into its title."""
    try:
        return b"_RankActor.call" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def until(running: Started, holds: Callable[[], int]) -> int:
    """What `holds` says when it is not 0; the run must not end before."""
    deadline = time.monotonic() + PATIENCE
    while not (found := holds()):
        assert not gone(running.pid) and time.monotonic() < deadline, running.err.read_text()
        time.sleep(0.02)
    return found
