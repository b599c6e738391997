"""Model weights in the main memory of a cluster's machines, in files that a Ray actor on each machine holds.

The files disappear with their actor. Ranks of a trainer fill the file of their own machine. A machine with engines
alone gets a copy of such a file, piece by piece through Ray's object store.
"""

import sys
from collections import deque
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import numpy as np

from infuser_core.engines.cluster.machines import (
    Machine,
    RayCluster,
    actor_on,
    answer,
    connected,
    living_machines,
    name_of,
)
from infuser_core.engines.service.weight_transfer import Memory, WeightFile, WeightSource
from infuser_core.errors import EngineError

if TYPE_CHECKING:
    from infuser_core.engines.training.tensor_files import Shapes

PIECE = 64 << 20
"""Bytes of a file that are copied at a time."""
AHEAD = 4
"""Most pieces on their way to a machine at a time."""
ANSWER_SECONDS = 60.0
"""Longest wait for an actor: its start, or one piece over the network."""


class _MemoryActor:
    """Ray actor that holds weight files in the memory of its machine, by number."""

    def __init__(self, python_path: list[str]) -> None:
        sys.path[:] = python_path
        self._files: dict[int, Memory] = {}

    def create(self, number: int, shapes: "Shapes", dtype: str, others: list[int]) -> tuple[str, int]:
        """Create file `number`, and drop all files but this one and the `others`; returns its path and size."""
        self._files = {other: self._files[other] for other in others}
        self._files[number] = file = Memory(shapes, dtype)
        return str(file.path), file.path.stat().st_size

    def read(self, number: int, start: int) -> np.ndarray:
        """Read the piece of a file from byte `start` on."""
        return np.fromfile(self._files[number].path, np.uint8, PIECE, offset=start)

    def write(self, number: int, start: int, piece: np.ndarray) -> None:
        """Write a piece at byte `start` of a file."""
        with self._files[number].path.open("r+b") as handle:
            handle.seek(start)
            handle.write(piece.data)


class RemoteFile:
    """A WeightFile on a machine of the cluster."""

    def __init__(self, memory: "RemoteMemory", number: int, path: str, size: int) -> None:
        self.memory, self.number, self.path, self.size = memory, number, Path(path), size


class RemoteMemory:
    """Weight files in the memory of one machine, held by an actor there."""

    def __init__(self, ray: Any, machine: Machine) -> None:
        self._ray, self._host = ray, machine.host
        self.actor = actor_on(ray, machine, _MemoryActor, sys.path)
        self._number, self._files = 0, WeakSet[RemoteFile]()

    def create(self, shapes: "Shapes", dtype: str) -> RemoteFile:
        """Create a file with room for tensors; files that this process no longer uses are dropped first."""
        self._number += 1
        others = [file.number for file in self._files]
        created = self.wait(self.actor.create.remote(self._number, dict(shapes), dtype, others))
        file = RemoteFile(self, self._number, *created)
        self._files.add(file)
        return file

    def wait(self, reference: Any) -> Any:
        """Wait for the actor's answer. Raises EngineError if the call fails or takes too long."""
        return answer(self._ray, reference, host=self._host, doing="memory for weights", seconds=ANSWER_SECONDS)


class ClusterMemory:
    """Copies a trainer's weights into the main memory of a cluster's machines."""

    def __init__(self, cluster: RayCluster) -> None:
        self._cluster = cluster
        self._memories: dict[str, RemoteMemory] = {}

    def fill(self, source: WeightSource, dtype: str, engines: Collection[str]) -> Mapping[str, WeightFile]:
        """Write the source's weights to a file on each machine with engines: a weight_transfer.Fill.

        Raises EngineError if a machine has left the cluster.
        """
        shapes, sources = source.shapes(), source.machines()
        # Engines may all be on machines without ranks: the first copy then needs a file on a machine with ranks.
        first = [name for name in sources if name in engines] or list(sources[:1])
        rest = [name for name in engines if name not in first]
        self._start_actors([*first, *rest])
        files = {name: self._memories[name].create(shapes, dtype) for name in (*first, *rest)}
        source.fill_files({name: files[name].path for name in first}, dtype)
        self._copy(files[first[0]], [files[name] for name in rest])
        return {name: files[name] for name in engines}

    def _start_actors(self, names: Collection[str]) -> None:
        """Start the actors missing on these machines, and forget those of machines that left."""
        ray = connected(self._cluster, cores=1)
        alive = {name_of(ray, machine.node): machine for machine in living_machines(ray)}
        self._memories = {name: memory for name, memory in self._memories.items() if name in alive}
        for name in names:
            if name not in alive:
                raise EngineError("a machine with engines has left the cluster", hint="its Ray's logs say why")
            if name not in self._memories:
                self._memories[name] = RemoteMemory(ray, alive[name])

    def _copy(self, source: RemoteFile, targets: Collection[RemoteFile]) -> None:
        writes = deque[tuple[RemoteMemory, Any]]()
        for start in range(0, source.size if targets else 0, PIECE):
            # Each piece is read once for all targets.
            piece = source.memory.actor.read.remote(source.number, start)
            for file in targets:
                writes.append((file.memory, file.memory.actor.write.remote(file.number, start, piece)))
            while len(writes) > AHEAD * len(targets):
                memory, reference = writes.popleft()
                memory.wait(reference)
        for memory, reference in writes:
            memory.wait(reference)
