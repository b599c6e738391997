"""Two groups of ranks on the same accelerators: rank by rank together, never two ranks of a group on one."""

import os
import subprocess
import sys

import distributed_tiny as tiny
import pytest
from places import SUPPORT

pytestmark = [pytest.mark.distributed, pytest.mark.long]

TESTS = SUPPORT

# Ray counts accelerators as it is told: a machine without any will do.
DRIVER = """
import ray
ray.init(address="local", num_cpus=2, num_gpus=2, include_dashboard=False, log_to_driver=False, logging_level="error",
         object_store_memory=128 * 2**20, _node_ip_address="127.0.0.1")
from infuser_core.engines.cluster.ranks import RankGroup
groups = [RankGroup("rank_workers:Obedient", "", ranks=2, gpus=1.0, shared=True) for _ in range(2)]
for group in groups:
    print(*group.call("accelerators", [()] * 2), flush=True)
groups[0].close()
print(*RankGroup("rank_workers:Obedient", "", ranks=2, gpus=1.0, shared=True).call("accelerators", [()] * 2))
"""


def test_two_roles_share_accelerators_rank_by_rank() -> None:
    tiny.deepspeed()
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(TESTS.parent), str(TESTS)]),
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    done = subprocess.run([sys.executable, "-c", DRIVER], capture_output=True, text=True, env=environment, timeout=280)
    assert done.returncode == 0, done.stderr
    told = [sorted(line.split()) for line in done.stdout.splitlines()]
    assert told == [["0", "1"]] * 3
