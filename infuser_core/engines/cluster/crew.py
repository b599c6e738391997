"""Workers of a crew over the machines of a Ray cluster: an actor for every core or accelerator.

Actors start when there is work for them and stay for the next. All machines must see the files that items name, at the
same paths.
"""

import os
import sys
import threading
from collections.abc import Mapping
from typing import Any

from infuser_core.engines.cluster.connection import actor_on, connected, machines
from infuser_core.engines.cluster.layout import Cluster, Machine
from infuser_core.engines.crew import Crew, LostWorkerError, Opened, Task, Worker
from infuser_core.errors import EngineError, InfuserError

MOST = 512
"""Workers of one task; each has a thread in this process."""

START_SECONDS = 120.0
"""Longest time in which an actor imports what it needs."""

LOOK_SECONDS = 10.0
"""Time between two looks at a worker that is busy."""

SILENCE_SECONDS = 45.0
"""A worker whose process answers nobody for so long counts as lost, with its item."""

_OURS = "INFUSER_"
"""Settings of the environment that a worker takes over from this process."""


class _Hand(Opened):
    """Ray actor that keeps a task's work open, and works on its items."""

    def __init__(self, places: list[str], environment: Mapping[str, str]) -> None:
        super().__init__()
        sys.path[:] = places
        os.environ.update(environment)

    def lives(self) -> bool:
        """Answer, beside the work."""
        return True


class _Slot:
    """Room for one actor: the number of a core or accelerator of a machine."""

    def __init__(self, machine: Machine, number: int, *, accelerator: bool) -> None:
        self.machine, self.number, self.accelerator = machine, number, accelerator
        self.actor: Any = None


class _RayWorker:
    """A worker on a machine of the cluster."""

    def __init__(self, ray: Any, slot: _Slot) -> None:
        self._ray, self.slot = ray, slot

    def do(self, task: Task, item: Any) -> Any:
        actor, errors = self.slot.actor, self._ray.exceptions
        try:
            told = actor.do.remote(task.begin, item)
            while not self._ray.wait([told], timeout=LOOK_SECONDS)[0]:
                self._ray.get(actor.lives.options(concurrency_group="lives").remote(), timeout=SILENCE_SECONDS)
            return self._ray.get(told)
        except errors.GetTimeoutError as error:
            raise LostWorkerError(f"{self.slot.machine.host} has not answered for {SILENCE_SECONDS:.0f} s") from error
        except errors.RayTaskError as error:
            raise (error.cause if isinstance(error.cause, InfuserError) else error) from None
        except errors.RayError as error:
            raise LostWorkerError(f"{self.slot.machine.host}: {type(error).__name__}") from error

    def end(self, *, now: bool) -> None:
        if now:
            self._ray.kill(self.slot.actor, no_restart=True)
            return
        # Asked, not waited for: calls of an actor follow each other.
        self.slot.actor.close.remote()


class RayCrew(Crew):
    """The crew of a cluster. Nothing starts before there is work; machines that join are found by the next task."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._ray: Any = None
        self._changed = threading.Condition()
        self._free: list[_Slot] = []
        self._all: set[_Slot] = set()

    def room(self, *, accelerator: bool) -> int:
        with self._changed:
            self._look()
            return min(MOST, sum(slot.accelerator == accelerator for slot in self._all))

    def take(self, task: Task, seconds: float) -> Worker | None:
        """See Crew. Machines get items in turn; an actor that does not start leaves its machine out."""
        while True:
            with self._changed:
                if not self._changed.wait_for(lambda: self._fitting(task) or not self._all, timeout=seconds):
                    return None
                found = self._fitting(task)
                if found is None:
                    raise EngineError(
                        f"{task.name}: no machine of the Ray cluster at {self._cluster.address!r} is left",
                        hint="start machines again, and repeat: what is finished is kept",
                    )
                self._free.remove(found)
            if found.actor is not None or self._started(found):
                return _RayWorker(self._ray, found)
            self._drop(found)

    def put(self, worker: Worker, *, lost: bool) -> None:
        """See Crew. In place of a lost one a new one starts with the next item, where its machine still can."""
        assert isinstance(worker, _RayWorker)
        if lost:
            self._ray.kill(worker.slot.actor, no_restart=True)
            worker.slot.actor = None
        with self._changed:
            if worker.slot in self._all:
                self._free.append(worker.slot)
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            for slot in self._all:
                if slot.actor is not None:
                    self._ray.kill(slot.actor, no_restart=True)
            self._all.clear()
            self._free.clear()

    def _fitting(self, task: Task) -> _Slot | None:
        found = [slot for slot in self._free if slot.accelerator == task.accelerator]
        return min(found, key=lambda slot: slot.number, default=None)

    def _look(self) -> None:
        """Take in machines that joined, and forget those that left."""
        self._ray = self._ray or connected(self._cluster, cores=1)
        there = {machine.node: machine for machine in machines(self._ray)}
        gone = {slot for slot in self._all if slot.machine.node not in there}
        self._all -= gone
        self._free = [slot for slot in self._free if slot not in gone]
        known = {slot.machine.node for slot in self._all}
        for machine in there.values():
            if machine.node not in known:
                made = _slots(machine)
                self._all.update(made)
                self._free += made

    def _started(self, slot: _Slot) -> bool:
        """Start the slot's actor; whether it answers."""
        environment = {name: value for name, value in os.environ.items() if name.startswith(_OURS)}
        if slot.accelerator and slot.machine.cards:
            environment["CUDA_VISIBLE_DEVICES"] = str(slot.number)
        # One call at a time: `lives` alone is answered beside the work.
        slot.actor = actor_on(self._ray, slot.machine, _Hand, sys.path, environment, beside="lives")
        try:
            self._ray.get(slot.actor.lives.options(concurrency_group="lives").remote(), timeout=START_SECONDS)
        except self._ray.exceptions.RayError:
            self._ray.kill(slot.actor, no_restart=True)
            return False
        return True

    def _drop(self, slot: _Slot) -> None:
        """Leave out a whole machine that starts no actor; those at work there end by themselves."""
        with self._changed:
            lost = {other for other in self._all if other.machine.node == slot.machine.node}
            self._all -= lost
            self._free = [other for other in self._free if other not in lost]
            self._changed.notify_all()


def _slots(machine: Machine) -> list[_Slot]:
    """Room on a machine: one actor for each core, and one for each accelerator, or for all work that wants one."""
    cores = [_Slot(machine, number, accelerator=False) for number in range(max(machine.cores, 1))]
    return cores + [_Slot(machine, number, accelerator=True) for number in range(max(machine.cards, 1))]
