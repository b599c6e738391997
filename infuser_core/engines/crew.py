"""Workers for the items of a long stage: threads and processes of this machine, or actors of a Ray cluster.

A stage hands over a task and its items and takes results as they end; it does not know which workers it has. An item
whose worker dies is done again by another one. Results are the same for any number of workers.
"""

import json
import math
import os
import sys
import threading
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from infuser_core import child
from infuser_core.errors import InfuserError, KilledProcessError
from infuser_core.system.worker import EndedError, WorkerProcess, connect

ATTEMPTS = 3
"""Workers that one item may lose."""

AHEAD = 2
"""Items per worker that are handed out before earlier results are taken: what is finished waits in memory."""

LOOK_SECONDS = 1.0
"""Seconds between two looks for a free worker."""

Work = Callable[[Any], Any]
"""One item to its result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One kind of work. What crosses to a worker is pickled: functions of modules, and plain values."""

    name: str
    """The work in a person's words, such as `conversion`."""
    begin: Callable[[], AbstractContextManager[Work]]
    """Opens what a worker keeps from item to item, models and indexes, and closes it when no item is left."""
    item: Callable[[Any], str] = str
    """Name of an item in messages."""
    apart: bool = True
    """Whether a local worker is a process; work that starts limited processes of its own needs threads only."""
    accelerator: bool = False
    """Whether a worker wants an accelerator: one worker on each, or one per machine where there are none. A local
    worker is then a thread, whose commands see its accelerator alone."""


class LostWorkerError(InfuserError):
    """A worker died or fell silent; its item can be done by another one."""


class Worker(Protocol):
    """A place where items are worked on, one at a time."""

    def do(self, task: Task, item: Any) -> Any:
        """The item's result. Raises LostWorkerError where the worker is gone, and what the work itself raises."""

    def end(self, *, now: bool) -> None:
        """Close what its task opened; `now` gives up an item that is under way."""


class Crew(ABC):
    """Workers, and the order in which items go to them."""

    @property
    def number(self) -> int:
        """Workers for tasks that want no accelerator."""
        return self.room(accelerator=False)

    @abstractmethod
    def room(self, *, accelerator: bool) -> int:
        """Workers that can work on such tasks at the same time."""

    @abstractmethod
    def take(self, task: Task, seconds: float) -> Worker | None:
        """One that is free, None after so long without. Raises EngineError where none is left."""

    @abstractmethod
    def put(self, worker: Worker, *, lost: bool) -> None:
        """Take a worker back that was ended or lost."""

    @abstractmethod
    def close(self) -> None:
        """End the workers."""

    def each(self, task: Task, items: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """Place and result of every item as they end.

        Raises what the work raises, and KilledProcessError for an item that lost ATTEMPTS workers.
        """
        number = min(self.room(accelerator=task.accelerator), len(items))
        if not number:
            return
        shift = _Shift(self, task)
        threads = ThreadPoolExecutor(number, thread_name_prefix=task.name)
        running: dict[Future[Any], int] = {}
        ahead = iter(enumerate(items))
        try:
            while True:
                for place, item in islice(ahead, number * AHEAD - len(running)):
                    running[threads.submit(shift.done, item)] = place
                if not running:
                    return
                # Without a limit: a worker ends every item in its own, and says which.
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    place = running.pop(future)
                    yield place, future.result()
        finally:
            for future in running:
                future.cancel()
            shift.end(now=bool(running))
            threads.shutdown()


class _Shift:
    """The workers of one task: those that are idle keep what they opened until the task ends."""

    def __init__(self, crew: Crew, task: Task) -> None:
        self._crew, self._task = crew, task
        self._lock = threading.Lock()
        self._idle: list[Worker] = []
        self._busy: set[Worker] = set()
        self._over = False

    def done(self, item: Any) -> Any:
        """The result of one item, by as many workers as it takes."""
        said: list[str] = []
        while len(said) < ATTEMPTS and not self._over:
            worker = self._worker()
            lost = len(said)
            try:
                return worker.do(self._task, item)
            except LostWorkerError as error:
                said.append(error.message)
            finally:
                self._rest(worker, lost=len(said) > lost)
        raise KilledProcessError(
            f"{self._task.name}: {self._task.item(item)} lost its worker: {'; '.join(dict.fromkeys(said))}",
            hint=f"{child.guess_of_kill()}; free some memory, or use fewer workers, and repeat: finished work is kept",
        )

    def end(self, *, now: bool) -> None:
        """Close what the task opened at its workers; with `now` those at work are given up."""
        with self._lock:
            self._over = True
            idle, busy = self._idle, [*self._busy]
        for worker in busy:
            worker.end(now=now)
        for worker in idle:
            worker.end(now=False)
            self._crew.put(worker, lost=False)

    def _worker(self) -> Worker:
        found: Worker | None = None
        while found is None:
            with self._lock:
                found = self._idle.pop() if self._idle else None
            # Another task may have them all, and one of our own may be idle again.
            found = found or self._crew.take(self._task, LOOK_SECONDS)
        with self._lock:
            self._busy.add(found)
        return found

    def _rest(self, worker: Worker, *, lost: bool) -> None:
        with self._lock:
            self._busy.discard(worker)
            if not (lost or self._over):
                self._idle.append(worker)
                return
        if not lost:
            worker.end(now=False)
        self._crew.put(worker, lost=lost)


class Opened:
    """A task's work as a worker keeps it open from item to item."""

    def __init__(self) -> None:
        self._work: Work | None = None
        self._stack = ExitStack()

    def do(self, begin: Callable[[], AbstractContextManager[Work]], item: Any) -> Any:
        """The item's result; the first one opens the task."""
        if self._work is None:
            self._work = self._stack.enter_context(begin())
        return self._work(item)

    def close(self) -> None:
        """Close the task."""
        self._work = None
        self._stack.close()


def serve(descriptor: str) -> None:
    """Work on items in a worker process: messages are `(begin, item)`, or `()` to close the task."""
    pipe, opened = connect(descriptor), Opened()
    with suppress(EOFError):
        while True:
            message = pipe.recv()
            try:
                reply = ("done", opened.do(*message) if message else None)
                if not message:
                    opened.close()
            except Exception as error:  # Raised again where its result is awaited.
                error.add_note("".join(traceback.format_exception(error)))
                reply = ("raised", error)
            pipe.send(reply)


class _Thread:
    """A worker in the thread that asks, with an accelerator where it wants one and there are any."""

    def __init__(self, card: str | None) -> None:
        self.card = card
        self._opened = Opened()

    def do(self, task: Task, item: Any) -> Any:
        with child.on_card(self.card):
            return self._opened.do(task.begin, item)

    def end(self, *, now: bool) -> None:
        """See Worker; what is under way ends by its own limits, and closes then."""
        if not now:
            self._opened.close()


class _Process:
    """A worker process; it may serve one task after the other."""

    def __init__(self) -> None:
        code = (
            f"import json, sys; sys.path[:] = json.loads(sys.argv[2]); from {__name__} import serve; serve(sys.argv[1])"
        )
        # What it prints goes to standard error: commands of ours write their results to standard output.
        self._worker = WorkerProcess(
            [sys.executable, "-P", "-c", code],
            [json.dumps([each or str(Path.cwd()) for each in sys.path])],
            name="a process",
        )

    def do(self, task: Task, item: Any) -> Any:
        return self._ask(task.begin, item)

    def end(self, *, now: bool) -> None:
        if now:
            self._worker.kill()
            return
        # A lost worker shows to the next task that takes it.
        with suppress(LostWorkerError):
            self._ask()

    def _ask(self, *message: Any) -> Any:
        try:
            self._worker.send(*message)
            kind, result = self._worker.receive(math.inf)
        except EndedError as error:
            reason = "a process was killed from outside" if self._worker.killed() else error.message
            self._worker.close()
            raise LostWorkerError(reason) from error
        if kind == "raised":
            raise result
        return result

    def close(self) -> None:
        """End the process."""
        self._worker.close()


class LocalCrew(Crew):
    """The crew of this machine; processes that have ended a task are kept for the next one."""

    def __init__(self, workers: int, cards: Sequence[str]) -> None:
        self._workers, self._cards = workers, len(cards)
        self._free = SimpleQueue[str]()
        for card in cards:
            self._free.put(card)
        self._resting: list[_Process] = []
        """Appending and popping need no lock."""

    def room(self, *, accelerator: bool) -> int:
        """See Crew. What one loads on an accelerator fills it."""
        return max(1, self._cards) if accelerator else self._workers

    def take(self, task: Task, seconds: float) -> Worker | None:
        if task.accelerator and self._cards:
            try:
                return _Thread(self._free.get(timeout=seconds))
            except Empty:
                return None
        if not task.apart:
            return _Thread(None)
        try:
            return self._resting.pop()
        except IndexError:
            return _Process()

    def put(self, worker: Worker, *, lost: bool) -> None:
        if isinstance(worker, _Thread) and worker.card is not None:
            self._free.put(worker.card)
        if isinstance(worker, _Process) and not lost:
            self._resting.append(worker)

    def close(self) -> None:
        while self._resting:
            self._resting.pop().close()


def local_crew(workers: int | None = None) -> LocalCrew:
    """This machine's crew: so many workers, or one for every core, and one for every accelerator."""
    return LocalCrew(workers or os.cpu_count() or 1, _cards())


def _cards() -> list[str]:
    """The accelerators that this process may use. torch would tell as well, in seconds."""
    named = os.environ.get(child.CARDS)
    if named is not None:
        return [name.strip() for name in named.split(",") if name.strip() not in ("", "-1")]
    return [str(place) for place, _ in enumerate(Path("/dev").glob("nvidia[0-9]*"))]
