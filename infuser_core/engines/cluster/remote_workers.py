"""Worker processes on other machines of a Ray cluster: an actor on each machine starts them and relays messages.

An actor dies with the process that created it, and its workers die with the actor.
"""

import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from infuser_core.engines.cluster.machines import (
    Machine,
    RayCluster,
    actor_on,
    answer,
    connected,
    living_machines,
    name_of,
    shares,
)
from infuser_core.engines.service.launch import START_SECONDS, ServiceOptions
from infuser_core.engines.service.local_engines import LocalEngines
from infuser_core.errors import EngineError
from infuser_core.system.child import LOOK_SECONDS
from infuser_core.system.worker import EndedError, Peer, WorkerProcess, wait
from infuser_core.system.worker_pool import start_process

LISTEN_SECONDS = 1.0
"""Longest time for which an actor waits for a message before it answers."""

TICK_SECONDS = 0.1
"""Longest time until an actor listens to a worker that has just started."""

SILENCE_SECONDS = 45.0
"""A machine that does not answer for this long counts as dead."""

ENDING_SECONDS = 15.0
"""Time for a machine's engines to end before the actor itself is killed."""


class _Host:
    """Ray actor that runs worker processes of its machine: engines, or processes of a worker pool."""

    def __init__(self, python_path: list[str]) -> None:
        sys.path[:] = python_path
        self._engines: LocalEngines | None = None
        self._workers: dict[int, WorkerProcess] = {}
        self._number = 0

    def start_engines(
        self, options: ServiceOptions, where: str, cards: list[str], folder: str, longest: int | None
    ) -> list[tuple[int, str, int]]:
        """Start the machine's engines; returns number, name and process id of each."""
        self._engines = LocalEngines(options, cards=cards, where=where)
        self._engines.start(Path(folder), longest=longest)
        return [self._add(engine) for engine in self._engines.engines]

    def start_process(self, name: str, environment: Mapping[str, str]) -> tuple[int, str, int]:
        """Start a process of a worker pool; returns its number, name and process id."""
        return self._add(start_process(name=name, environment={**os.environ, **environment}))

    def _add(self, worker: WorkerProcess) -> tuple[int, str, int]:
        self._number += 1
        self._workers[self._number] = worker
        return self._number, worker.name, worker.pid

    def show(self, folder: str, weights: str | None) -> None:
        """Point the engines to a checkpoint's files: see LocalEngines.show."""
        assert self._engines is not None, "start_engines comes first"
        self._engines.show(Path(folder), None if weights is None else Path(weights))

    def send(self, number: int, message: tuple[Any, ...]) -> None:
        """Send a message to a worker. Does nothing for a dead worker, whose error `listen` returns."""
        if worker := self._workers.get(number):
            worker.send(*message)

    def kill(self, number: int) -> None:
        """End a worker at once."""
        if worker := self._workers.get(number):
            worker.kill()

    def listen(self) -> tuple[list[tuple[int, Any]], dict[int, float]]:
        """Wait for messages of the workers; also returns the age of each worker's oldest unread message.

        Messages come with the worker's number. If one is an error, it is the worker's last.
        """
        messages: list[tuple[int, Any]] = []
        deadline = time.monotonic() + LISTEN_SECONDS
        while not messages and time.monotonic() < deadline:
            workers = dict(self._workers)
            wait([*workers.values()], TICK_SECONDS)
            for number, worker in workers.items():
                try:
                    while (message := worker.receive()) is not None:
                        messages.append((number, message))
                except EngineError as error:
                    messages.append((number, error))
                    del self._workers[number]
                    worker.close()
        return messages, {number: worker.waiting_seconds() for number, worker in dict(self._workers).items()}

    def close(self, keep_output: bool) -> None:
        """End the engines."""
        if self._engines is not None:
            self._engines.close(keep_output=keep_output)


class RemoteWorker(Peer):
    """A worker process of another machine, reached through that machine's actor."""

    def __init__(self, host: "RemoteHost", number: int, name: str, pid: int) -> None:
        super().__init__(name, pid, output=f"its output is on {host.name}")
        self._host, self._number = host, number

    def send(self, *message: Any) -> None:
        self._host.actor.send.remote(self._number, message)

    def waiting_seconds(self) -> float:
        return self._host.waiting.get(self._number, 0.0)

    def kill(self) -> None:
        self._host.actor.kill.remote(self._number)

    def close(self) -> None:
        self.kill()

    def _next(self, seconds: float) -> Any:
        inbox, deadline = self._host.inboxes[self._number], time.monotonic() + seconds
        while True:
            remaining = max(0.0, deadline - time.monotonic())
            try:
                message = inbox.get(timeout=min(remaining, LOOK_SECONDS))
            except Empty:
                if self._host.lost:
                    hint = "the phase is tried again with the machines that are left"
                    text = f"{self.name} is gone with its machine: {self._host.lost}"
                    raise EndedError(text, hint=hint) from None
                if remaining == 0.0:
                    return None
                continue
            if isinstance(message, EngineError):
                # Put back: it is the answer to every later request too.
                inbox.put(message)
                raise EngineError(message.message, hint=f"{message.hint}, on {self._host.name}")
            return message


class RemoteHost:
    """Another machine with its actor and workers; `bell` is set whenever one of the workers has a message."""

    def __init__(self, ray: Any, machine: Machine, bell: threading.Event | None = None) -> None:
        self.ray, self.name = ray, machine.host
        self.actor = actor_on(ray, machine, _Host, sys.path, group="listen")
        self.lost = ""
        """Why the machine is lost; empty while it answers."""
        self.inboxes: defaultdict[int, SimpleQueue[Any]] = defaultdict(SimpleQueue)
        """Messages of each worker by its number; an EngineError is the last one."""
        self.waiting: dict[int, float] = {}
        """Age of each worker's oldest unread message, seconds, as the actor last reported."""
        self._bell = bell or threading.Event()
        self._listener = threading.Thread(target=self._listen, name=f"workers of {self.name}", daemon=True)
        self._lock = threading.Lock()

    def start_process(self, name: str, environment: Mapping[str, str], *, seconds: float) -> RemoteWorker:
        """Start a process of a worker pool. Raises EngineError if the machine starts none within `seconds`."""
        return self.add(*self.call("start_process", name, environment, seconds=seconds))

    def call(self, method: str, *arguments: Any, seconds: float = START_SECONDS) -> Any:
        """Call a method of the actor. Raises EngineError if it fails or does not answer."""
        reference = getattr(self.actor, method).remote(*arguments)
        return answer(self.ray, reference, host=self.name, doing=method, seconds=seconds)

    def add(self, number: int, name: str, pid: int) -> RemoteWorker:
        """Return a handle of a worker that the actor has started, and listen to its messages."""
        with self._lock:
            # Not started earlier: an actor that takes long to start would count as silent.
            if self._listener.ident is None:
                self._listener.start()
        return RemoteWorker(self, number, name, pid)

    def _listen(self) -> None:
        """Receive the messages of the machine's workers until the actor is gone."""
        errors = self.ray.exceptions
        try:
            while True:
                reference = self.actor.listen.options(concurrency_group="listen").remote()
                messages, self.waiting = self.ray.get(reference, timeout=LISTEN_SECONDS + SILENCE_SECONDS)
                for number, message in messages:
                    self.inboxes[number].put(message)
                if messages:
                    self._bell.set()
        except errors.RayError as error:
            late = isinstance(error, errors.GetTimeoutError)
            self.lost = f"it has not answered for {SILENCE_SECONDS:.0f} s" if late else type(error).__name__
        finally:
            self.lost = self.lost or "this process no longer listens to it"
            self._bell.set()


class RemoteEngines(RemoteHost):
    """The sampling engines of another machine, with the interface of LocalEngines."""

    def __init__(
        self, ray: Any, machine: Machine, options: ServiceOptions, cards: list[str], bell: threading.Event
    ) -> None:
        super().__init__(ray, machine, bell)
        self.machine = name_of(ray, machine.node)
        self._options, self._cards = options, cards
        self.engines: list[RemoteWorker] = []

    def start(self, folder: Path, *, longest: int | None) -> None:
        arguments = (self._options, f" on {self.name}", self._cards, str(folder), longest)
        self.engines = [self.add(*engine) for engine in self.call("start_engines", *arguments)]

    def show(self, folder: Path, weights: Path | None = None) -> None:
        self.call("show", str(folder), None if weights is None else str(weights))

    def close(self, *, keep_output: bool = False) -> None:
        """End the machine's engines within ENDING_SECONDS, and kill the actor."""
        closing = self.actor.close.remote(keep_output)
        self.ray.wait([closing], timeout=0.0 if self.lost else ENDING_SECONDS)
        self.ray.kill(self.actor, no_restart=True)


def engines_of(cluster: RayCluster, options: ServiceOptions, bell: threading.Event) -> list[RemoteEngines]:
    """Create the engines of each sampling machine, not yet started. Raises EngineError if the cluster is too small."""
    ray = connected(cluster, cores=1)
    return [
        RemoteEngines(
            ray,
            share.machine,
            options,
            [str(card) for card in range(0 if cluster.turns else share.ranks, share.machine.cards)],
            bell,
        )
        for share in shares(living_machines(ray), cluster, cuda=options.device == "cuda")
        if share.engines
    ]
