"""Engines of other machines: a Ray actor on each starts them and passes messages on, in both directions.

An actor dies with the process that asked for it, and its engines with the actor.
"""

import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from infuser_core.engines.cluster.connection import answer, connected, machines, name_of, on
from infuser_core.engines.cluster.layout import Cluster, Machine, shares
from infuser_core.engines.service.launch import ServiceOptions
from infuser_core.engines.service.link import Channel
from infuser_core.engines.service.process import Engine
from infuser_core.engines.service.station import Station
from infuser_core.errors import EngineError

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
        self._bell = threading.Event()
        self._station = Station(options, self._bell, cards=cards, where=where)
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
        """Words of the engines by place, an error being the last of one; and how long each has left a command lying."""
        self._bell.wait(LISTEN_SECONDS)
        self._bell.clear()
        said = [(place, word) for place in range(len(self._station.engines)) for word in self._heard(place)]
        return said, [engine.waiting_seconds() for engine in self._station.engines]

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


class RemoteLink(Channel):
    """Channel to an engine behind an actor."""

    def __init__(self, actor: Any, place: int) -> None:
        super().__init__()
        self._actor, self._place = actor, place
        self.waiting = 0.0

    def send(self, message: tuple[Any, ...]) -> None:
        self._actor.tell.remote(self._place, message)

    def waiting_seconds(self) -> float:
        """See Channel; as the actor last told."""
        return self.waiting


class RemoteEngine(Engine):
    """An engine of another machine."""

    def __init__(self, name: str, pid: int, link: RemoteLink, station: "RemoteStation") -> None:
        super().__init__(name, link)
        self._pid, self._station = pid, station
        self.last_word: EngineError | None = None

    @property
    def pid(self) -> int:
        return self._pid

    def hung(self, what: str) -> EngineError:
        return EngineError(f"{self.name} (pid {self.pid}) {what}", hint="its output is on that machine")

    def _death(self) -> EngineError:
        return self.last_word or EngineError(
            f"{self.name} is gone with its machine: {self._station.lost}",
            hint="the phase is tried again with the machines that are left",
        )


class RemoteStation:
    """service.sampler.Stationed on one machine of a cluster."""

    def __init__(self, ray: Any, actor: Any, machine: Machine, start_seconds: float, bell: threading.Event) -> None:
        self._ray, self._actor, self._host = ray, actor, machine.host
        self.machine = name_of(ray, machine.node)
        self._start_seconds, self._bell = start_seconds, bell
        self._links: list[RemoteLink] = []
        self.engines: list[RemoteEngine] = []
        self.lost = ""

    def start(self, folder: Path, *, longest: int | None) -> None:
        started = self._ask("start", str(folder), longest)
        self._links = [RemoteLink(self._actor, place) for place in range(len(started))]
        told = zip(started, self._links, strict=True)
        self.engines = [RemoteEngine(name, pid, link, self) for (name, pid), link in told]
        threading.Thread(target=self._listen, name=f"engines of {self._host}", daemon=True).start()

    def show(self, folder: Path, weights: Path | None = None) -> None:
        self._ask("show", str(folder), None if weights is None else str(weights))

    def close(self, *, keep_output: bool = False) -> None:
        """End the machine's engines and the actor; one that does not answer is killed."""
        closing = self._actor.close.remote(keep_output)
        self._ray.wait([closing], timeout=0.0 if self.lost else ENDING_SECONDS)
        self._ray.kill(self._actor, no_restart=True)
        self.engines = []

    def _ask(self, method: str, *arguments: Any) -> Any:
        reference = getattr(self._actor, method).remote(*arguments)
        return answer(self._ray, reference, host=self._host, doing=method, seconds=self._start_seconds)

    def _listen(self) -> None:
        """Take in what the machine's engines say, until the actor is gone."""
        try:
            while True:
                said, waiting = self._ray.get(
                    self._actor.listen.options(concurrency_group="listen").remote(),
                    timeout=LISTEN_SECONDS + SILENCE_SECONDS,
                )
                self._take_in(said, waiting)
        except self._ray.exceptions.RayError as error:
            late = isinstance(error, self._ray.exceptions.GetTimeoutError)
            self.lost = f"it has not answered for {SILENCE_SECONDS:.0f} s" if late else type(error).__name__
        finally:
            for link in self._links:
                link.end()
            self._bell.set()

    def _take_in(self, said: list[tuple[int, Any]], waiting: list[float]) -> None:
        for place, word in said:
            if isinstance(word, EngineError):
                self.engines[place].last_word = EngineError(word.message, hint=f"{word.hint}, on {self._host}")
                self._links[place].end()
            else:
                self._links[place].put(word)
        for link, seconds in zip(self._links, waiting, strict=False):
            link.waiting = seconds
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
        actor = ray.remote(max_restarts=0, concurrency_groups={"listen": 1})(_Host)
        made = actor.options(num_cpus=0, scheduling_strategy=on(ray, machine)).remote(
            options, f" on {machine.host}", cards, sys.path
        )
        found.append(RemoteStation(ray, made, machine, options.start_seconds, bell))
    return found
