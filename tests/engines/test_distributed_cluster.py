"""A nano iteration over two Ray nodes: one trains, the other samples until it is killed, and no row changes by it."""

import os
import signal
import socket
from pathlib import Path

import pytest
import yaml
from launcher import Launcher
from ray_nodes import Nodes
from test_distributed_ranks import descendants
from test_distributed_run import RANKS, Made, entries, finished, start, until

from infuser_core.engines.cluster.machines import Machine, RayCluster, connected, shares
from infuser_core.errors import EngineError
from infuser_core.schemas import Rollout

pytestmark = pytest.mark.distributed

SAMPLED = ("rollout_dev", "generate_questions", "rollout_questions")
WORKER = "infuser_core.engines.hf.worker"


def running(command: str, raylet: int) -> list[int]:
    """Processes of a node that run a command."""
    return [pid for pid in descendants(raylet) if command in cmdline(pid)]


def cmdline(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def test_a_node_that_samples_is_killed_and_the_rows_stay_those_of_one_machine(
    nodes: Nodes, launch: Launcher, tmp_path: Path
) -> None:
    overlay, points = tmp_path / "cluster.yaml", tmp_path / "points"
    overlay.write_text(yaml.safe_dump({"cluster": {"address": nodes.address}}))
    points.touch()
    run = start(launch, tmp_path, "cluster", RANKS, overlay, INFUSER_POINTS=str(points))
    local = start(launch, tmp_path, "local")
    until(run, lambda: "rollout_questions:start" in points.read_text().split())
    ranks = until(run, lambda: next((node for node in nodes.raylets() if running("ray::_RankActor", node)), 0))
    sampling = until(run, lambda: next((node for node in nodes.raylets() if running(WORKER, node)), 0))
    assert sampling != ranks
    # Stopped first, so that the phase cannot end before its machine does.
    for pid in running(WORKER, sampling):
        os.kill(pid, signal.SIGSTOP)
    os.kill(sampling, signal.SIGKILL)
    finished(run)
    finished(local)
    (failure,) = entries(tmp_path, "cluster", "failed")
    assert failure.phase == "rollout_questions" and "is gone with its machine" in failure.message
    spread, alone = Made(tmp_path, "cluster"), Made(tmp_path, "local")
    for phase in SAMPLED:
        drawn = [[row.token_ids for row in made.rows(phase, "rollouts", Rollout)] for made in (spread, alone)]
        assert drawn[0] == drawn[1] and drawn[0]
    # The machine that is left has both: its ranks hand over what its engines go on with.
    assert [spread.weights(phase) for phase in ("rollout_questions", "respond")] == ["fresh", "memory"]


HERE, THERE = (Machine(node=name, host=name, cards=8, cores=2) for name in ("here", "there"))


def parts(cluster: RayCluster, *, cuda: bool, machines: list[Machine]) -> list[tuple[int, bool]]:
    return [(share.ranks, share.engines) for share in shares(machines, cluster, cuda=cuda)]


def test_ranks_fill_machines_in_order_and_engines_take_what_is_left() -> None:
    both = [HERE, THERE]
    apart, turns = RayCluster(address="", ranks=4), RayCluster(address="", ranks=16, turns=True)
    assert parts(apart, cuda=True, machines=both) == [(4, True), (0, True)]
    assert parts(RayCluster(address="", ranks=8), cuda=True, machines=both) == [(8, False), (0, True)]
    assert parts(turns, cuda=True, machines=both) == [(8, True), (8, True)]
    assert parts(RayCluster(address="", ranks=2), cuda=False, machines=both) == [(2, False), (0, True)]
    assert parts(RayCluster(address="", ranks=2), cuda=False, machines=both[:1]) == [(2, True)]


def test_a_cluster_that_is_too_small_is_refused_with_its_numbers() -> None:
    with pytest.raises(EngineError, match=r"20 ranks need as many accelerators, and the cluster has here 8, there 8"):
        shares([HERE, THERE], RayCluster(address="", ranks=20), cuda=True)
    with pytest.raises(EngineError, match="16 ranks leave none of the cluster's accelerators to the sampler"):
        shares([HERE, THERE], RayCluster(address="", ranks=16), cuda=True)


def test_a_cluster_that_is_not_there_is_named_at_once() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
        with pytest.raises(EngineError, match=f"no Ray cluster answers at '{address}'"):
            connected(RayCluster(address=address), cores=1)
