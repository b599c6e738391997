"""A group of worker processes that work as one: Ray actors, one per rank, found dead or silent within a bounded time.

The group is all or nothing. When a rank fails, dies or stops answering, the others are ended too, because they may
wait for it in a collective, and the call raises EngineError with the rank's name; `failed` says so from then on. When
the process that made the group dies, Ray ends the ranks.
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

from infuser_core.engines.cluster.connection import connected, machines, name_of, on
from infuser_core.engines.cluster.layout import Cluster, shares
from infuser_core.engines.protocols import Progress, no_progress
from infuser_core.errors import EngineError, InfuserError

START_SECONDS = 300.0
"""Longest start of all ranks: imports on a busy machine take most of it."""

SILENCE_SECONDS = 45.0
"""A rank that answers nobody for so long counts as dead."""

GRACE_SECONDS = 5.0
"""After a first failure others are heard for so long: a killed rank's peers often complain before it is missed."""

_START = "start"
_HINT = "the phase is tried again with fresh ranks; their output is in Ray's session folder"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """Place of a rank: its node and accelerator."""

    rank: int
    """Its number."""
    ranks: int
    """Ranks of the group."""
    meeting: str
    """`init_method` of torch.distributed."""
    local: bool
    """Whether all ranks share one machine."""


class _Worker:
    """The actor: one object of a class found by name, called from outside; `pulse` answers beside a running call."""

    def __init__(self) -> None:
        self._work: Any = None

    def where(self) -> tuple[str, int, int, str]:
        """Address of the machine, a free port of it, the process, and Ray's id of the node."""
        import ray

        with socket.socket() as probe:
            probe.bind(("", 0))
            address, port = str(ray.util.get_node_ip_address()), int(probe.getsockname()[1])
        return address, port, os.getpid(), str(ray.get_runtime_context().get_node_id())

    def sit(self, path: str, seat: Seat, options: Any, environment: dict[str, str], places: list[str]) -> None:
        """Make the object, importing from the same `places` as the driver; it may meet the others here."""
        os.environ.update(environment)
        sys.path[:] = places
        self._work = resolve_name(path)(seat, options)

    def call(self, method: str, arguments: tuple[Any, ...]) -> Any:
        """Call a method of the object."""
        return getattr(self._work, method)(*arguments)

    def pulse(self) -> tuple[int, int]:
        """Rows and tokens that the running call has finished."""
        return (0, 0) if self._work is None else self._work.progress


class RankGroup:
    """Ranks of a class `module:Name` with `Name(seat, options)`, and `progress` as (rows, tokens).

    Each asks Ray for `gpus` accelerators of its own, on the machines of `cluster` that train. Raises EngineError where
    there are fewer.
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
        cluster: Cluster | None = None,
    ) -> None:
        self.failed = False
        self._silence = silence
        self._ray = connected(cluster, cores=ranks)
        there = self._ray.cluster_resources().get("GPU", 0.0)
        if gpus * ranks > there:
            raise EngineError(
                f"{ranks} ranks need {gpus * ranks:g} accelerators, and Ray has {there:g}",
                hint="set engine.ranks to fewer",
            )
        self._folder = tempfile.mkdtemp(prefix="infuser-ranks-")
        self._pids: dict[int, int] = {}
        actor = self._ray.remote(max_restarts=0, concurrency_groups={"pulse": 1})(_Worker)
        parts = [] if cluster is None else shares(machines(self._ray), cluster, cuda=gpus > 0)
        seats = [{"scheduling_strategy": on(self._ray, part.machine)} for part in parts for _ in range(part.ranks)]
        self._actors = [actor.options(num_cpus=0, num_gpus=gpus, **seat).remote() for seat in seats or [{}] * ranks]
        self._sit(path, options, dict(environment or {}))

    def call(
        self, method: str, arguments: Sequence[tuple[Any, ...]], *, progress: Progress = no_progress, total: int = 0
    ) -> list[Any]:
        """Call a method on every rank; results by rank.

        Raises the rank's own InfuserError, or EngineError naming the rank that failed, died or fell silent.
        """
        if self.failed:
            raise EngineError("the trainer's ranks are gone", hint=_HINT)
        rows = [self._ray.put(each) for each in arguments]
        waiting = [actor.call.remote(method, each) for actor, each in zip(self._actors, rows, strict=True)]
        return self._wait(waiting, method, progress=progress, total=total)

    @property
    def pids(self) -> list[int]:
        """Processes of the ranks by rank, where all of them are on this machine; else none."""
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
        """End every rank. They hold nothing that is not in a checkpoint."""
        self.failed = True
        for actor in self._actors:
            self._ray.kill(actor, no_restart=True)
        until = time.monotonic() + GRACE_SECONDS
        while time.monotonic() < until and any(_is_rank(pid) for pid in self._pids.values()):
            time.sleep(0.05)
        for pid in filter(_is_rank, self._pids.values()):
            # A stopped process hears nothing else.
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        self._actors, self._pids = [], {}
        shutil.rmtree(self._folder, ignore_errors=True)

    def _sit(self, path: str, options: Any, environment: dict[str, str]) -> None:
        deadline = time.monotonic() + START_SECONDS
        places = self._wait([actor.where.remote() for actor in self._actors], _START, deadline=deadline)
        self.machines = [name_of(self._ray, node) for *_, node in places]
        """Machine of every rank, by its name (see weight_transfer.HERE)."""
        local = len({address for address, *_ in places}) == 1
        if local:
            self._pids = {rank: pid for rank, (_, _, pid, _) in enumerate(places)}
        address, port, *_ = places[0]
        # One machine meets in a file: nothing listens for strangers.
        meeting = f"file://{Path(self._folder) / 'meeting'}" if local else f"tcp://{address}:{port}"
        count = len(self._actors)
        seats = [Seat(rank=rank, ranks=count, meeting=meeting, local=local) for rank in range(count)]
        told = (options, environment, sys.path)
        waiting = [actor.sit.remote(path, seat, *told) for actor, seat in zip(self._actors, seats, strict=True)]
        self._wait(waiting, _START, deadline=deadline)

    def _wait(
        self,
        waiting: list[Any],
        doing: str,
        *,
        progress: Progress = no_progress,
        total: int = 0,
        deadline: float | None = None,
    ) -> list[Any]:
        """Results of all ranks. Whatever ends it early, a signal included, ends the ranks: they are out of step."""
        finished = False
        try:
            watch = _Watch(self._ray, self._actors, self._silence)
            results: dict[int, Any] = {}
            while len(results) < len(waiting):
                failures = self._collect(waiting, results, seconds=1.0)
                if failures:
                    raise self._worst(failures, waiting, results, doing)
                if doing != _START and len(results) < len(waiting):
                    if silent := watch.silent():
                        told = f"rank {silent[0]} has not answered for {self._silence:g} s, in {doing}"
                        raise EngineError(told, hint=_HINT)
                    rows, tokens = watch.progress()
                    progress(min(rows, total), total, tokens)
                if deadline is not None and time.monotonic() > deadline:
                    late = [rank for rank in range(len(waiting)) if rank not in results]
                    raise EngineError(f"ranks {late} did not start within {START_SECONDS:g} s", hint=_HINT)
            finished = True
            return [results[rank] for rank in range(len(waiting))]
        finally:
            if not finished:
                self.close()

    def _collect(self, waiting: Sequence[Any], results: dict[int, Any], *, seconds: float) -> dict[int, Exception]:
        """Take in what ranks have finished within some seconds, and say who failed."""
        rest = {each: rank for rank, each in enumerate(waiting) if rank not in results}
        ready, _ = self._ray.wait(list(rest), num_returns=len(rest), timeout=seconds)
        failures: dict[int, Exception] = {}
        for each in ready:
            try:
                results[rest[each]] = self._ray.get(each)
            except self._ray.exceptions.RayError as error:
                failures[rest[each]] = error
        return failures

    def _worst(
        self, failures: dict[int, Exception], waiting: Sequence[Any], results: dict[int, Any], doing: str
    ) -> InfuserError:
        """The failure to tell of: a death before a complaint, our own errors as they are."""
        until = time.monotonic() + GRACE_SECONDS
        dead = self._ray.exceptions.RayActorError
        while time.monotonic() < until and not any(isinstance(error, dead) for error in failures.values()):
            if len(failures) + len(results) == len(waiting):
                break
            failures |= self._collect(waiting, results | failures, seconds=0.5)
        for rank, error in sorted(failures.items()):
            if isinstance(error, dead):
                return EngineError(f"rank {rank} died in {doing}", hint=_HINT)
        causes = {rank: getattr(error, "cause", None) or error for rank, error in sorted(failures.items())}
        ours = [cause for cause in causes.values() if isinstance(cause, InfuserError)]
        rank, cause = next(iter(causes.items()))
        told = EngineError(f"rank {rank} failed in {doing}: {type(cause).__name__}: {cause}", hint=_HINT)
        return ours[0] if ours else told


class _Watch:
    """Asks every rank for its pulse, and for the next one when it has answered."""

    def __init__(self, ray: Any, actors: Sequence[Any], limit: float) -> None:
        self._ray = ray
        self._actors = actors
        self._limit = limit
        self._asked: dict[int, Any] = {}
        self._heard = [time.monotonic()] * len(actors)
        self._told = [(0, 0)] * len(actors)

    def silent(self) -> list[int]:
        """Ranks that have not answered for too long."""
        for rank, actor in enumerate(self._actors):
            asked = self._asked.get(rank)
            if asked is not None:
                ready, _ = self._ray.wait([asked], timeout=0)
                if not ready:
                    continue
                # A rank that died is found by its call.
                with suppress(self._ray.exceptions.RayError):
                    self._told[rank] = self._ray.get(asked)
                    self._heard[rank] = time.monotonic()
            self._asked[rank] = actor.pulse.options(concurrency_group="pulse").remote()
        now = time.monotonic()
        return [rank for rank, heard in enumerate(self._heard) if now - heard > self._limit]

    def progress(self) -> tuple[int, int]:
        """Rows and tokens of all ranks."""
        return sum(rows for rows, _ in self._told), sum(tokens for _, tokens in self._told)


def _is_rank(pid: int) -> bool:
    """Whether a process of this machine is there and still one of Ray's."""
    with suppress(OSError):
        return b"ray::" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False
