"""Engines of other machines: a Ray actor on each starts them and passes messages on, in both directions.

An actor dies with the process that asked for it, and its engines with the actor.
"""

import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from infuser_core.engines.cluster.connection import actor_on, answer, connected, machines, name_of
from infuser_core.engines.cluster.layout import Cluster, Machine, shares
from infuser_core.engines.service.launch import START_SECONDS, ServiceOptions
from infuser_core.engines.service.station import Station
from infuser_core.errors import EngineError
from infuser_core.system.worker import Peer, wait

LISTEN_SECONDS = 1.0
"""Longest time for which an actor keeps a listener that nobody has anything to say to."""

SILENCE_SECONDS = 45.0
"""A machine that answers nobody for so long counts as dead."""

ENDING_SECONDS = 15.0
"""Time for a machine's engines to end before the actor itself is killed."""


class _Host:
    """Ray actor that runs the engines of its machine."""

    def __init__(self, options: ServiceOptions, where: str, cards: list[str], places: list[str]) -> None:
        sys.path[:] = places
        self._station = Station(options, cards=cards, where=where)
        self._gone: set[int] = set()

    def start(self, folder: str, longest: int | None) -> list[tuple[str, int]]:
        """Start the engines; their names and processes."""
        self._station.start(Path(folder), longest=longest)
        return [(engine.name, engine.pid) for engine in self._station.engines]

    def show(self, folder: str, weights: str | None) -> None:
        self._station.show(Path(folder), None if weights is None else Path(weights))

    def tell(self, place: int, message: tuple[Any, ...]) -> None:
        """Pass a command on."""
        self._station.engines[place].send(*message)

    def listen(self) -> tuple[list[tuple[int, Any]], list[float]]:
        """Messages by engine, an error being the last of one; and the age of each engine's oldest unread command."""
        engines = self._station.engines
        wait([engine for place, engine in enumerate(engines) if place not in self._gone], LISTEN_SECONDS)
        said = [(place, word) for place in range(len(engines)) for word in self._heard(place)]
        return said, [engine.waiting_seconds() for engine in engines]

    def close(self, keep_output: bool) -> None:
        """End the engines."""
        self._station.close(keep_output=keep_output)

    def _heard(self, place: int) -> Iterable[Any]:
        try:
            while place not in self._gone and (word := self._station.engines[place].receive()) is not None:
                yield word
        except EngineError as error:
            self._gone.add(place)
            yield error


class RemoteEngine(Peer):
    """An engine of another machine, reached through that machine's actor."""

    def __init__(self, name: str, pid: int, place: int, station: "RemoteStation") -> None:
        super().__init__(name, pid, output="its output is on that machine")
        self._place, self._station = place, station
        self._messages = SimpleQueue[Any]()
        self._death: EngineError | None = None
        self.waiting = 0.0
        """Age of its oldest unread command, seconds, as the actor last reported."""

    def send(self, *message: Any) -> None:
        self._station.actor.tell.remote(self._place, message)

    def waiting_seconds(self) -> float:
        return self.waiting

    def put(self, message: Any) -> None:
        """Take a message in; an EngineError is the last one."""
        self._messages.put(message)

    def _next(self, seconds: float) -> Any:
        if self._death is None:
            try:
                message = self._messages.get(timeout=max(seconds, 0.0)) if seconds > 0 else self._messages.get_nowait()
            except Empty:
                return None
            if not isinstance(message, EngineError):
                return message
            self._death = message
        raise self._death


class RemoteStation:
    """The engines of another machine of a cluster, as a Station is of this one."""

    def __init__(self, ray: Any, actor: Any, machine: Machine, bell: threading.Event) -> None:
        self._ray, self.actor, self._host = ray, actor, machine.host
        self.machine = name_of(ray, machine.node)
        self._bell = bell
        self.engines: list[RemoteEngine] = []
        self.lost = ""

    def start(self, folder: Path, *, longest: int | None) -> None:
        started = self._ask("start", str(folder), longest)
        self.engines = [RemoteEngine(name, pid, place, self) for place, (name, pid) in enumerate(started)]
        threading.Thread(target=self._listen, name=f"engines of {self._host}", daemon=True).start()

    def show(self, folder: Path, weights: Path | None = None) -> None:
        self._ask("show", str(folder), None if weights is None else str(weights))

    def close(self, *, keep_output: bool = False) -> None:
        """End the machine's engines and the actor; one that does not answer is killed."""
        closing = self.actor.close.remote(keep_output)
        self._ray.wait([closing], timeout=0.0 if self.lost else ENDING_SECONDS)
        self._ray.kill(self.actor, no_restart=True)

    def _ask(self, method: str, *arguments: Any) -> Any:
        reference = getattr(self.actor, method).remote(*arguments)
        return answer(self._ray, reference, host=self._host, doing=method, seconds=START_SECONDS)

    def _listen(self) -> None:
        """Take in what the machine's engines say, until the actor is gone."""
        try:
            while True:
                said, waiting = self._ray.get(
                    self.actor.listen.options(concurrency_group="listen").remote(),
                    timeout=LISTEN_SECONDS + SILENCE_SECONDS,
                )
                self._take_in(said, waiting)
        except self._ray.exceptions.RayError as error:
            late = isinstance(error, self._ray.exceptions.GetTimeoutError)
            self.lost = f"it has not answered for {SILENCE_SECONDS:.0f} s" if late else type(error).__name__
        finally:
            gone = f"is gone with its machine: {self.lost}"
            for engine in self.engines:
                hint = "the phase is tried again with the machines that are left"
                engine.put(EngineError(f"{engine.name} {gone}", hint=hint))
            self._bell.set()

    def _take_in(self, said: list[tuple[int, Any]], waiting: list[float]) -> None:
        for place, word in said:
            if isinstance(word, EngineError):
                word = EngineError(word.message, hint=f"{word.hint}, on {self._host}")
            self.engines[place].put(word)
        for engine, seconds in zip(self.engines, waiting, strict=False):
            engine.waiting = seconds
        if said:
            self._bell.set()


def stations(cluster: Cluster, options: ServiceOptions, bell: threading.Event) -> list[RemoteStation]:
    """One for every machine that samples, nothing started yet. Raises EngineError where the cluster is too small."""
    ray = connected(cluster, cores=1)
    found = []
    for share in shares(machines(ray), cluster, cuda=options.device == "cuda"):
        if not share.engines:
            continue
        machine = share.machine
        first = 0 if cluster.turns else share.ranks
        cards = [str(card) for card in range(first, machine.cards)]
        made = actor_on(ray, machine, _Host, options, f" on {machine.host}", cards, sys.path, beside="listen")
        found.append(RemoteStation(ray, made, machine, bell))
    return found
