"""A pool of worker processes on the machines of a Ray cluster: one process for every core or accelerator.

Processes start when there is work for them and stay for the next task. All machines must see the files that items name,
at the same paths.
"""

import os
import threading
from typing import Any

from infuser_core.engines.cluster.machines import Machine, RayCluster, connected, living_machines
from infuser_core.engines.cluster.remote_workers import RemoteHost, RemoteWorker
from infuser_core.errors import EngineError
from infuser_core.system.worker_pool import Slot, WorkerPool, slots_of

START_SECONDS = 120.0
"""Longest time for an actor's imports."""

OUR_SETTINGS = "INFUSER_"
"""Prefix of environment variables that a worker takes over from this process."""


class RayPool(WorkerPool):
    """Worker pool of a Ray cluster. Processes start when there is work; new tasks also use machines that joined."""

    def __init__(self, cluster: RayCluster) -> None:
        super().__init__()
        self._cluster = cluster
        self._ray: Any = None
        self._machines: dict[str, Machine] = {}
        self._hosts: dict[str, RemoteHost] = {}
        self._starting = threading.Lock()

    def close(self) -> None:
        super().close()
        for host in self._hosts.values():
            self._ray.kill(host.actor, no_restart=True)
        self._hosts.clear()

    def _update_machines(self) -> None:
        self._ray = self._ray or connected(self._cluster, cores=1)
        alive = {machine.node: machine for machine in living_machines(self._ray)}
        self._machines |= alive
        self._slots = {slot for slot in self._slots if slot.node in alive}
        self._free &= self._slots
        nodes = {slot.node for slot in self._slots}
        for machine in alive.values():
            if machine.node in nodes:
                continue
            slots = slots_of(machine.cores, [str(card) for card in range(machine.cards)], machine.node)
            self._slots.update(slots)
            self._free.update(slots)

    def _start_process(self, slot: Slot) -> RemoteWorker:
        machine = self._machines[slot.node]
        with self._starting:
            host = self._hosts.get(slot.node)
            if host is None or host.lost:
                host = self._hosts[slot.node] = RemoteHost(self._ray, machine)
        environment = {name: value for name, value in os.environ.items() if name.startswith(OUR_SETTINGS)}
        if slot.card is not None:
            environment["CUDA_VISIBLE_DEVICES"] = slot.card
        try:
            return host.start_process(f"a process on {machine.host}", environment, seconds=START_SECONDS)
        except EngineError:
            with self._starting:
                self._hosts.pop(slot.node, None)
            self._ray.kill(host.actor, no_restart=True)
            raise
