"""Two Ray nodes on this machine, as two machines would be; tests share them, and may kill the second one."""

import os
from pathlib import Path

from places import ROOT, SUPPORT
from ray.cluster_utils import Cluster

SETTINGS = {
    # Workers are the work itself, as in every Ray that `connected` starts.
    "worker_niceness": 0,
    # A dead node refuses the connection: five refusals are soon counted, and a busy node still has its long time.
    "health_check_period_ms": 300,
}


class Nodes:
    """Nodes of two cores each. Engines on them say in the file `reads` what they read."""

    def __init__(self, reads: Path) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        folders = map(str, (ROOT, SUPPORT, ROOT / "tests/engines"))
        self.reads = reads
        self._node = {"num_cpus": 2, "env_vars": {"PYTHONPATH": os.pathsep.join(folders), "PLAIN_READS": str(reads)}}
        head = {"include_dashboard": False, "no_monitor": True, "include_log_monitor": False}
        self._cluster = Cluster(True, head_node_args={**self._node, **head, "_system_config": SETTINGS})
        self._cluster.add_node(**self._node)
        self.address: str = self._cluster.address

    def complete(self) -> None:
        """Start another second node where a test has killed it."""
        for node in [each for each in self._cluster.worker_nodes if each.dead_processes()]:
            self._cluster.remove_node(node, allow_graceful=False)
            self._cluster.add_node(**self._node)
        self._cluster.wait_for_nodes()

    def raylets(self) -> list[int]:
        """Processes of the nodes."""
        return [node.all_processes["raylet"][0].process.pid for node in self._cluster.list_all_nodes()]

    def close(self) -> None:
        self._cluster.shutdown()
