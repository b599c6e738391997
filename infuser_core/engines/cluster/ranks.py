"""Ranks (processes) of a distributed trainer as Ray actors, whose death or silence is noticed in bounded time.

The group is all or nothing. When a rank fails, dies or stops answering, the others are ended too, because they may wait
for it in a collective. The call raises EngineError with the rank's number, and `failed` is true from then on. When the
process that started the group dies, Ray ends the ranks.
"""

import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from infuser_core.engines.cluster.machines import RayCluster, connected, living_machines, name_of, shares, strategy_for
from infuser_core.errors import EngineError, InfuserError
from infuser_core.protocols import Progress, no_progress

START_SECONDS = 300.0
"""Longest time for all ranks to start; imports on a busy machine take most of it."""

SILENCE_SECONDS = 45.0
"""A rank that does not answer for this long counts as dead."""

GRACE_SECONDS = 5.0
"""Wait for other failures after the first one: the peers of a killed rank often fail before its death is noticed."""

_START = "start"
_HINT = "the phase is tried again with fresh ranks; their output is in Ray's session folder"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """Number of a rank in its group, and the address at which the group meets."""

    rank: int
    ranks: int
    """Number of ranks."""
    meeting: str
    """`init_method` of torch.distributed."""
    local: bool
    """Whether all ranks share one machine."""


class _RankActor:
    """Ray actor that holds a rank's object and calls its methods; `pulse` also answers during a call."""

    def __init__(self) -> None:
        self._rank: Any = None

    def location(self) -> tuple[str, int, int, str]:
        """Return the address of the machine, a free port, the process id, and Ray's id of the node."""
        import ray

        with socket.socket() as probe:
            probe.bind(("", 0))
            address, port = str(ray.util.get_node_ip_address()), int(probe.getsockname()[1])
        return address, port, os.getpid(), str(ray.get_runtime_context().get_node_id())

    def start(self, path: str, seat: Seat, options: Any, environment: dict[str, str], python_path: list[str]) -> None:
        """Create the rank's object, which may join its process group at once."""
        os.environ.update(environment)
        sys.path[:] = python_path
        self._rank = resolve_name(path)(seat, options)

    def call(self, method: str, arguments: tuple[Any, ...]) -> Any:
        """Call a method of the rank's object."""
        return getattr(self._rank, method)(*arguments)

    def pulse(self) -> tuple[int, int]:
        """Return the numbers of rows and tokens that the running call has finished."""
        return (0, 0) if self._rank is None else self._rank.progress


class RankGroup:
    """A group of `ranks` processes, each with an object of the class at `path` (`module:Name`).

    The object is created as `Name(seat, options)`, and its `progress` is (rows, tokens). Each rank gets `gpus`
    accelerators from Ray, on the machines of `cluster` that train. Raises EngineError if there are too few.
    """

    def __init__(
        self,
        path: str,
        options: Any,
        *,
        ranks: int,
        gpus: float = 0.0,
        environment: Mapping[str, str] | None = None,
        silence: float = SILENCE_SECONDS,
        cluster: RayCluster | None = None,
    ) -> None:
        self.failed = False
        self._silence = silence
        self._ray = connected(cluster, cores=ranks)
        available = self._ray.cluster_resources().get("GPU", 0.0)
        if gpus * ranks > available:
            raise EngineError(
                f"{ranks} ranks need {gpus * ranks:g} accelerators, and Ray has {available:g}",
                hint="set engine.ranks to fewer",
            )
        self._folder = tempfile.mkdtemp(prefix="infuser-ranks-")
        self._pids: dict[int, int] = {}
        actor = self._ray.remote(max_restarts=0, concurrency_groups={"pulse": 1})(_RankActor)
        parts = [] if cluster is None else shares(living_machines(self._ray), cluster, cuda=gpus > 0)
        nodes = [{"scheduling_strategy": strategy_for(part.machine)} for part in parts for _ in range(part.ranks)]
        self._actors = [actor.options(num_cpus=0, num_gpus=gpus, **node).remote() for node in nodes or [{}] * ranks]
        self._start(path, options, dict(environment or {}))

    def call(
        self, method: str, arguments: Sequence[tuple[Any, ...]], *, progress: Progress = no_progress, total: int = 0
    ) -> list[Any]:
        """Call a method on every rank, each with its own arguments; returns results by rank.

        Raises the rank's InfuserError, or EngineError naming the rank that failed, died or fell silent.
        """
        if self.failed:
            raise EngineError("the trainer's ranks are gone", hint=_HINT)
        references = [self._ray.put(each) for each in arguments]
        calls = [actor.call.remote(method, each) for actor, each in zip(self._actors, references, strict=True)]
        return self._wait(calls, method, progress=progress, total=total)

    @property
    def pids(self) -> list[int]:
        """Process ids by rank; empty if the ranks are spread over machines."""
        return [self._pids[rank] for rank in sorted(self._pids)]

    def alive(self) -> bool:
        """Whether every rank answers now."""
        if self.failed:
            return False
        pulses = [actor.pulse.options(concurrency_group="pulse").remote() for actor in self._actors]
        ready, _ = self._ray.wait(pulses, num_returns=len(pulses), timeout=self._silence)
        try:
            self._ray.get(ready)
        except self._ray.exceptions.RayError:
            ready = []
        if len(ready) < len(pulses):
            self.close()
        return not self.failed

    def close(self) -> None:
        """End every rank. The ranks' state is lost, except for saved checkpoints."""
        self.failed = True
        for actor in self._actors:
            self._ray.kill(actor, no_restart=True)
        deadline = time.monotonic() + GRACE_SECONDS
        while time.monotonic() < deadline and any(_is_rank(pid) for pid in self._pids.values()):
            time.sleep(0.05)
        for pid in filter(_is_rank, self._pids.values()):
            # Ray's own signal does not end a stopped process.
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        self._actors, self._pids = [], {}
        shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self, path: str, options: Any, environment: dict[str, str]) -> None:
        deadline = time.monotonic() + START_SECONDS
        locations = self._wait([actor.location.remote() for actor in self._actors], _START, deadline=deadline)
        self.machines = [name_of(self._ray, node) for *_, node in locations]
        """Machine of every rank, by its name (see weight_transfer.HERE)."""
        is_local = len({address for address, *_ in locations}) == 1
        if is_local:
            self._pids = {rank: pid for rank, (_, _, pid, _) in enumerate(locations)}
        address, port, *_ = locations[0]
        # Ranks of one machine meet in a file, which opens no port.
        meeting = f"file://{Path(self._folder) / 'meeting'}" if is_local else f"tcp://{address}:{port}"
        count = len(self._actors)
        seats = [Seat(rank=rank, ranks=count, meeting=meeting, local=is_local) for rank in range(count)]
        calls = [
            actor.start.remote(path, seat, options, environment, sys.path)
            for actor, seat in zip(self._actors, seats, strict=True)
        ]
        self._wait(calls, _START, deadline=deadline)

    def _wait(
        self,
        calls: list[Any],
        doing: str,
        *,
        progress: Progress = no_progress,
        total: int = 0,
        deadline: float | None = None,
    ) -> list[Any]:
        """Wait for the results of all ranks. Any exception, a signal included, ends them: they may be out of step."""
        is_finished = False
        try:
            watch = _PulseWatch(self._ray, self._actors, self._silence)
            results: dict[int, Any] = {}
            while len(results) < len(calls):
                failures = self._collect(calls, results, seconds=1.0)
                if failures:
                    raise self._error_of(failures, calls, results, doing)
                if doing != _START and len(results) < len(calls):
                    if silent := watch.silent():
                        text = f"rank {silent[0]} has not answered for {self._silence:g} s, in {doing}"
                        raise EngineError(text, hint=_HINT)
                    rows, tokens = watch.progress()
                    progress(min(rows, total), total, tokens)
                if deadline is not None and time.monotonic() > deadline:
                    late = [rank for rank in range(len(calls)) if rank not in results]
                    raise EngineError(f"ranks {late} did not start within {START_SECONDS:g} s", hint=_HINT)
            is_finished = True
            return [results[rank] for rank in range(len(calls))]
        finally:
            if not is_finished:
                self.close()

    def _collect(self, calls: Sequence[Any], results: dict[int, Any], *, seconds: float) -> dict[int, Exception]:
        """Add results that arrive within `seconds` to `results`; returns failures by rank."""
        ranks = {call: rank for rank, call in enumerate(calls) if rank not in results}
        ready, _ = self._ray.wait(list(ranks), num_returns=len(ranks), timeout=seconds)
        failures: dict[int, Exception] = {}
        for call in ready:
            try:
                results[ranks[call]] = self._ray.get(call)
            except self._ray.exceptions.RayError as error:
                failures[ranks[call]] = error
        return failures

    def _error_of(
        self, failures: dict[int, Exception], calls: Sequence[Any], results: dict[int, Any], doing: str
    ) -> InfuserError:
        """Choose the error to raise: the death of a rank before other failures, which it may have caused.

        Of the other failures, the first InfuserError comes first, unchanged.
        """
        deadline = time.monotonic() + GRACE_SECONDS
        dead = self._ray.exceptions.RayActorError
        while time.monotonic() < deadline and not any(isinstance(error, dead) for error in failures.values()):
            if len(failures) + len(results) == len(calls):
                break
            failures |= self._collect(calls, results | failures, seconds=0.5)
        for rank, error in sorted(failures.items()):
            if isinstance(error, dead):
                return EngineError(f"rank {rank} died in {doing}", hint=_HINT)
        causes = {rank: getattr(error, "cause", None) or error for rank, error in sorted(failures.items())}
        for cause in causes.values():
            if isinstance(cause, InfuserError):
                return cause
        rank, cause = next(iter(causes.items()))
        return EngineError(f"rank {rank} failed in {doing}: {type(cause).__name__}: {cause}", hint=_HINT)


class _PulseWatch:
    """Polls the progress of all ranks, and finds ranks that no longer answer."""

    def __init__(self, ray: Any, actors: Sequence[Any], limit: float) -> None:
        self._ray = ray
        self._actors = actors
        self._limit = limit
        self._requests: dict[int, Any] = {}
        self._answer_times = [time.monotonic()] * len(actors)
        self._pulses = [(0, 0)] * len(actors)

    def silent(self) -> list[int]:
        """List the ranks that have not answered within the limit."""
        for rank, actor in enumerate(self._actors):
            request = self._requests.get(rank)
            if request is not None:
                ready, _ = self._ray.wait([request], timeout=0)
                if not ready:
                    continue
                # A dead rank is noticed by its call, not here.
                with suppress(self._ray.exceptions.RayError):
                    self._pulses[rank] = self._ray.get(request)
                    self._answer_times[rank] = time.monotonic()
            self._requests[rank] = actor.pulse.options(concurrency_group="pulse").remote()
        now = time.monotonic()
        return [rank for rank, answered_at in enumerate(self._answer_times) if now - answered_at > self._limit]

    def progress(self) -> tuple[int, int]:
        """Add up the finished rows and tokens of all ranks."""
        return sum(rows for rows, _ in self._pulses), sum(tokens for _, tokens in self._pulses)


def _is_rank(pid: int) -> bool:
    """Whether a process id of this machine belongs to a running Ray worker."""
    with suppress(OSError):
        return b"ray::" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False
