"""Weights in the memory of a cluster's machines: an actor on each holds their files, which go with it.

Where a trainer has ranks, they fill the machine's file. A machine with engines alone gets a copy of such a file, piece
by piece through Ray's object store.
"""

import sys
from collections import deque
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import numpy as np

from infuser_core.engines.cluster.connection import actor_on, answer, connected, machines, name_of
from infuser_core.engines.cluster.layout import Cluster, Machine
from infuser_core.engines.service.handover import Giver, Laid, Memory
from infuser_core.errors import EngineError

if TYPE_CHECKING:
    from infuser_core.engines.training.tensor_files import Shapes

PIECE = 64 << 20
"""Bytes of a file that are copied at a time."""
AHEAD = 4
"""Pieces on their way between machines."""
ANSWER_SECONDS = 60.0
"""Longest wait for an actor: its start, or one piece over the network."""


class _Keeper:
    """The actor: files of one machine by number."""

    def __init__(self, places: list[str]) -> None:
        sys.path[:] = places
        self._held: dict[int, Memory] = {}

    def make(self, number: int, shapes: "Shapes", dtype: str, wanted: list[int]) -> tuple[str, int]:
        """A file of that number, where of the others only the wanted ones stay; its path and size."""
        self._held = {each: self._held[each] for each in wanted}
        self._held[number] = made = Memory(shapes, dtype)
        return str(made.path), made.path.stat().st_size

    def piece(self, number: int, start: int) -> np.ndarray:
        """Bytes of a file from there on."""
        return np.fromfile(self._held[number].path, np.uint8, PIECE, offset=start)

    def take(self, number: int, start: int, piece: np.ndarray) -> None:
        """Write a piece where it belongs."""
        with self._held[number].path.open("r+b") as handle:
            handle.seek(start)
            handle.write(piece.data)


class _Kept:
    """handover.Laid on a machine of the cluster."""

    def __init__(self, machine: "_Machine", number: int, path: str, size: int) -> None:
        self.machine, self.number, self.path, self.size = machine, number, Path(path), size


class _Machine:
    """The actor, from outside."""

    def __init__(self, ray: Any, machine: Machine) -> None:
        self._ray, self._host = ray, machine.host
        self.actor = actor_on(ray, machine, _Keeper, sys.path)
        self._made, self._files = 0, WeakSet[_Kept]()

    def make(self, shapes: "Shapes", dtype: str) -> _Kept:
        """A file with room for tensors. What nobody holds any more is forgotten first."""
        self._made += 1
        wanted = [file.number for file in self._files]
        made = _Kept(self, self._made, *self.ask(self.actor.make.remote(self._made, dict(shapes), dtype, wanted)))
        self._files.add(made)
        return made

    def ask(self, reference: Any) -> Any:
        """The actor's answer."""
        return answer(self._ray, reference, host=self._host, doing="memory for weights", seconds=ANSWER_SECONDS)


class Keepers:
    """Memory for weights on the machines of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._machines: dict[str, _Machine] = {}

    def filled(self, giver: Giver, dtype: str, wanted: Collection[str]) -> Mapping[str, Laid]:
        """A file of the giver's weights on each wanted machine: handover.Fill. Raises EngineError if one is gone."""
        shapes, own = giver.shapes(), giver.machines()
        # Engines may all live where nobody trains: the copy that they get has to lie somewhere as well.
        first = [name for name in own if name in wanted] or list(own[:1])
        rest = [name for name in wanted if name not in first]
        self._find([*first, *rest])
        files = {name: self._machines[name].make(shapes, dtype) for name in (*first, *rest)}
        giver.lay({name: files[name].path for name in first}, dtype)
        self._copy(files[first[0]], [files[name] for name in rest])
        return {name: files[name] for name in wanted}

    def _find(self, names: Collection[str]) -> None:
        """Actors on these machines, and on none that has left."""
        ray = connected(self._cluster, cores=1)
        there = {name_of(ray, machine.node): machine for machine in machines(ray)}
        self._machines = {name: each for name, each in self._machines.items() if name in there}
        for name in names:
            if name not in there:
                raise EngineError("a machine with engines has left the cluster", hint="its Ray's logs say why")
            if name not in self._machines:
                self._machines[name] = _Machine(ray, there[name])

    def _copy(self, source: _Kept, targets: Collection[_Kept]) -> None:
        waiting = deque[tuple[_Machine, Any]]()
        for start in range(0, source.size if targets else 0, PIECE):
            # Read once for all of them.
            piece = source.machine.actor.piece.remote(source.number, start)
            for file in targets:
                waiting.append((file.machine, file.machine.actor.take.remote(file.number, start, piece)))
            while len(waiting) > AHEAD * len(targets):
                _finish(waiting)
        while waiting:
            _finish(waiting)


def _finish(waiting: deque[tuple[_Machine, Any]]) -> None:
    machine, reference = waiting.popleft()
    machine.ask(reference)
